"""``s6mod report``: one page to look at for any runs."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app, warn_of

Runs = Annotated[list[Path] | None, typer.Argument(help="Run folders, records, or folders with them (default: runs).")]


@app.command()
def report(
    runs: Runs = None,
    study: Annotated[list[Path] | None, typer.Option(help="Folder or file of a study to take in; repeatable.")] = None,
    store: options.Stores = None,
    out: Annotated[Path, typer.Option(help="The file to write; replaced if it is there.")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Write it again and again until no run is under way.")] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds between two pages.")] = 10,
    own: options.Import = None,
) -> None:
    """Write one HTML page about runs, for a browser.

    Figures against base, control and paper, curves, matrices, images, and the configuration of each run.
    """
    from s6mod.report.write import write_report
    from s6mod.runs.store import homes, scan

    def written(file: Path) -> None:
        typer.echo(str(file))
        if show:
            webbrowser.open(file.resolve().as_uri())

    known = scan(store if store is not None else homes())
    warn_of(known.problems)
    write_report(runs or [Path("runs")], study or [], known, out, every if watch else None, written)
