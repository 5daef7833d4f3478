"""``s6mod study``: sensitivity, number of patterns and routing."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from s6mod.cli import options
from s6mod.cli.app import app, leave, warn_of
from s6mod.cli.options import WHAT

Name = Annotated[
    Literal["alpha", "beta", "patterns", "routing"],
    typer.Argument(metavar="STUDY", help="alpha, beta, patterns or routing."),
]
Values = Annotated[
    str | None, typer.Option(help="What to vary over, e.g. 0.1,1,5 (default: the paper's).", rich_help_panel=WHAT)
]


@app.command()
def study(
    name: Name,
    method: options.Learner,
    values: Values = None,
    data: options.CellData = None,
    memory: options.CellMemory = None,
    seeds: options.Seeds = "0-2",
    assignments: options.BranchAssignments = None,
    to: options.To = None,
    out: options.Out = Path("runs"),
    store: options.MoreStores = None,
    no_run: options.NoRun = False,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    workers: options.Workers = None,
    at_once: options.AtOnce = None,
    yes: options.Yes = False,
    quiet: options.Quiet = False,
    own: options.Import = None,
) -> None:
    """How S6MOD answers to alpha, beta, the number of patterns or its routing: runs, table and figure."""
    from s6mod.analysis.carry_out import How, carry_out
    from s6mod.analysis.question import split_changes, whole_cell
    from s6mod.analysis.studies import study as ask
    from s6mod.experiments.perform import Means

    branch, others = split_changes(assignments or [])
    whole = whole_cell(method, data, memory, branch, data_root)
    question = ask(name, whole, _numbers(values, name)).over(others)
    how = How(out, store, data_root, Means(device, workers, at_once), no_run, yes, quiet)
    leave(*carry_out(question, seeds, to, how, warn_of))


def _numbers(text: str | None, study: str) -> list[float] | None:
    kind, such = (int, "1,2,4") if study == "patterns" else (float, "0.1,1,5")
    try:
        return None if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as {such} for {study}, got {text!r}") from None
