"""``s6mod inside``: what goes on inside the branch of a run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli.app import app


@app.command()
def inside(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run with S6MOD.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder for figures and table (default: studies/NAME beside the run).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.")] = None,
) -> None:
    """Routing over time, load of patterns, Delta and prototypes between classes, entropies, pull of each loss term."""
    from s6mod.analysis.inside import study_inside
    from s6mod.cli.study import beside, check_writable, deliver
    from s6mod.report.matrix_picture import require_matplotlib

    require_matplotlib()
    check_writable(to or beside(run))
    study = study_inside(run, device, data_root)
    deliver(study, to or beside(run) / study.name, Console(emoji=False))
