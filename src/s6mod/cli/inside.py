"""``s6mod inside``: what goes on inside the branch of a run."""

from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app


@app.command()
def inside(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run with S6MOD.")],
    to: options.To = None,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    own: options.Import = None,
) -> None:
    """What goes on inside the branch of a run.

    Routing over time, load of patterns, Delta and prototypes between classes, entropies, pull of each loss term.
    """
    from s6mod.analysis.carry_out import study_of
    from s6mod.analysis.inside import study_inside

    study_of([run], lambda: study_inside(run, device, data_root), to)
