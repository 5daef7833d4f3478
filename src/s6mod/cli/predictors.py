"""``s6mod predictors``: which weights, statistics and scores predict best, from the same trainings."""

import json
from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app, warn_of
from s6mod.errors import ConfigError


@app.command()
def predictors(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders with runs or records (default: runs and results, if there).")
    ] = None,
    cell: Annotated[str | None, typer.Option(help="Only cells that contain this, e.g. s6mod or cifar100/2000.")] = None,
    json_output: options.Json = False,
    own: options.Import = None,
) -> None:
    """What would have predicted best, from the same trainings.

    Final accuracy by scores, weights and BatchNorm statistics: a table for each cell, mean over seeds.
    """
    from s6mod.paper.predictors import as_rows, compared, lines
    from s6mod.runs.store import homes, scan
    from s6mod.runs.strangers import strangers

    found = scan(folders or homes())
    chosen = [run for run in found.finished if cell is None or cell in run.cell]
    cells = compared(chosen)
    warn_of([*found.problems, *strangers(chosen)])
    if not cells:
        raise ConfigError(
            "expected a finished run that scored what could predict, got none; run one with output.predictors=true"
        )
    typer.echo(json.dumps(as_rows(cells), indent=1) if json_output else "\n".join(lines(cells)))
