"""``s6mod table``: our results beside the paper's."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app, warn_of
from s6mod.errors import CheckpointError

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="1, 2, ablation, ncm, sensitivity or patterns as in the paper; all: every cell in the store "
        "(default: 1 and 2)."
    ),
]
Precision = Annotated[
    Literal["float32", "bfloat16"] | None, typer.Option(help="Only results computed in this precision.")
]
OnlyRun = Annotated[bool, typer.Option("--only-run", help="Leave out cells that have not been run.")]
Over = Annotated[
    str | None,
    typer.Option(
        help="The learner that gains are over, e.g. er (default: the same method without a branch).",
        autocompletion=options.complete_cell,
    ),
]
Form = Annotated[
    Literal["terminal", "markdown", "latex", "csv", "json"] | None,
    typer.Option("--format", metavar="FORMAT", help="markdown, latex, csv, json or terminal (default: terminal)."),
]
Write = Annotated[
    Path | None, typer.Option(help="Write the page with all that was run of the paper's tables, from results alone.")
]
Check = Annotated[bool, typer.Option("--check", help="With --write: only say whether the page is stale.")]


@app.command()
def table(
    names: Names = None,
    store: options.Stores = None,
    precision: Precision = None,
    only_run: OnlyRun = False,
    over: Over = None,
    form: Form = None,
    json_output: options.Json = False,
    write: Write = None,
    check: Check = False,
    own: options.Import = None,
) -> None:
    """Results beside the paper's, with a verdict for each.

    With all, every result that is there, in the paper's or not.
    """
    if check and write is None:
        raise typer.BadParameter("--check needs --write with the page to check")
    if write is not None and over is not None:
        raise typer.BadParameter("--write measures gains as the page says; leave out --over")
    if write is not None and names:
        raise typer.BadParameter("--write takes all tables; leave out their names")
    way = options.form_of(form, json_output)
    from s6mod.experiments.missing import missing
    from s6mod.paper.page import check_page, page, write_page
    from s6mod.paper.published import TABLES
    from s6mod.paper.render import TEXTS, show
    from s6mod.paper.tables import Results, filled
    from s6mod.runs.store import homes, scan
    from s6mod.runs.strangers import strangers

    found = scan(store if store is not None else [Path("results")] if write is not None else homes())
    if found.problems:
        raise CheckpointError(found.problems[0])
    results = Results([run for run in found.finished if precision in (None, run.precision)])
    wanted = names or (TABLES if write is not None else ("1", "2"))
    tables = [filled(name, results, only_run or write is not None, over) for name in wanted]
    if write is not None:
        text = page(tables, missing(results))
        if check:
            check_page(write, text)
        else:
            write_page(write, text)
            typer.echo(str(write))
    elif way != "terminal":
        typer.echo(TEXTS[way](tables))
    else:
        for each in tables:
            show(each, Console(emoji=False))
        if found.finished and not any(row.ours for each in tables for row in each.rows):
            typer.echo("no result here belongs to these tables; s6mod table all shows every one", err=True)
    if over is not None and not any(row.gain for each in tables for row in each.rows):
        typer.echo(
            f"no gain: no result of {over} has the data, settings, precision and seed of another row; "
            "options that differ are named with it, as in er/method.network.width=8",
            err=True,
        )
    tell_left_out(found.repeated + results.repeated)
    warn_of(strangers(found.finished))


def tell_left_out(number: int) -> None:
    """Say how many results a table has no room for, if there are any."""
    if number:
        were = "result was" if number == 1 else "results were"
        typer.echo(f"{number} {were} left out: an earlier one of the same setting, seed and precision counts", err=True)
