"""``s6mod table``: our results beside the paper's."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from s6mod.cli.app import app


@app.command()
def table(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="1, 2, ablation, ncm, sensitivity or patterns as in the paper; all: every cell in the store "
            "(default: 1 and 2)."
        ),
    ] = None,
    store: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with runs or records; repeatable (default: runs and results, if there)."),
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="Only results computed in this precision.")
    ] = None,
    only_run: Annotated[bool, typer.Option("--only-run", help="Leave out cells that have not been run.")] = False,
    form: Annotated[
        Literal["terminal", "markdown", "latex", "csv", "json"],
        typer.Option("--format", metavar="FORMAT", help="terminal, markdown, latex, csv or json."),
    ] = "terminal",
    write: Annotated[
        Path | None, typer.Option(help="Write the page with all of the paper's tables, from results alone.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="With --write: only say whether the page is stale.")] = False,
) -> None:
    """The paper's tables with our results beside them, and a verdict for each cell."""
    if check and write is None:
        raise typer.BadParameter("--check needs --write with the page to check")
    if write is not None and names:
        raise typer.BadParameter(f"--write takes all tables; leave out {', '.join(names)}")

    from s6mod.errors import CheckpointError
    from s6mod.paper.page import page
    from s6mod.paper.published import TABLES
    from s6mod.paper.render import TEXTS, show
    from s6mod.paper.tables import Results, filled
    from s6mod.runs.store import homes, scan

    found = scan(store if store is not None else [Path("results")] if write is not None else homes())
    if found.problems:
        raise CheckpointError(found.problems[0])
    runs = [run for run in found.finished if precision in (None, run.precision)]
    results = Results(runs)
    tables = [filled(name, results, only_run) for name in (names or (TABLES if write is not None else ("1", "2")))]
    if write is not None:
        _page(write, page(tables), check)
    elif form != "terminal":
        typer.echo(TEXTS[form](tables))
    else:
        for each in tables:
            show(each, Console(emoji=False))
    tell_left_out(found.repeated + results.repeated)


def tell_left_out(number: int) -> None:
    """Say how many results a table has no room for, if there are any."""
    if number:
        were = "result was" if number == 1 else "results were"
        typer.echo(f"{number} {were} left out: an earlier one of the same setting, seed and precision counts", err=True)


def _page(file: Path, text: str, check: bool) -> None:
    from s6mod.errors import ConfigError
    from s6mod.files import write_whole
    from s6mod.paper.page import MARK

    if not check:
        if file.exists() and (found := file.read_bytes()) and MARK not in found:
            raise ConfigError(f"expected a new file or an older page of its own, got {file}; name another")
        write_whole(file, text)
        typer.echo(str(file))
    elif not file.exists() or file.read_bytes() != text.encode():
        raise ConfigError(f"expected {file} as the records say, got a stale page; run s6mod table --write {file}")
