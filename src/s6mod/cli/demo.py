"""``s6mod demo``: the first thing to try."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli.app import app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs, picture and report; replaced if it is there.")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 3,
) -> None:
    """Three learners on digits, side by side: a first picture.

    ER, ER + S6MOD and ER + confidence penalty, over a few seeds: a table, a picture and a report, in about three
    minutes on a laptop.
    """
    from s6mod.report.demo import run_demo

    run_demo(out, seeds, Console(emoji=False))
