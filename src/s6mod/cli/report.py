"""``s6mod report``: one page to look at for any runs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli.app import app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, records, or folders with them.")],
    study: Annotated[list[Path] | None, typer.Option(help="Folder or file of a study to take in; repeatable.")] = None,
    store: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder with runs or records where base and controls are looked for; repeatable "
            "(default: runs and results, if there)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write; replaced if it is there.")] = Path("report.html"),
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Write it again and again until no run is under way.")] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds between two pages.")] = 10,
) -> None:
    """Write one HTML file about runs: figures against base, control and paper, curves, matrices, configuration."""
    import webbrowser

    from s6mod.errors import ConfigError
    from s6mod.files import write_whole
    from s6mod.report.page import page
    from s6mod.report.source import read_runs, read_study
    from s6mod.runs.store import homes, scan

    if out.is_dir():
        raise ConfigError(f"expected a file for the report, got the folder {out}; name a file in it")
    studies = [read_study(file) for file in study or []]
    known = scan(store if store is not None else homes())
    for problem in known.problems:
        typer.echo(f"warning: {problem}", err=True)
    first = True
    while True:
        found = read_runs(runs)
        under_way = watch and any(run.stored.status == "running" for run in found)
        write_whole(out, page(found, studies, known.finished, every if under_way else None))
        if first:
            typer.echo(str(out))
            if show:
                webbrowser.open(out.resolve().as_uri())
        if not under_way:
            return
        first = False
        time.sleep(every)
