"""``s6mod study``: sensitivity, number of patterns, routing, and plug-ins on every method."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from s6mod.cli import options
from s6mod.cli.app import app, leave, warn_of
from s6mod.cli.options import WHAT

Name = Annotated[
    Literal["alpha", "beta", "patterns", "routing", "plug-in"],
    typer.Argument(metavar="STUDY", help="alpha, beta, patterns, routing or plug-in."),
]
Method = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="A method, or a cell without branch: er, onpro/cifar100/2000. For plug-in: methods such as er,pcr "
        "(default: all).",
        autocompletion=options.complete_method,
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Say what it would run and what it would cost; start nothing.")]
Write = Annotated[
    Path | None, typer.Option(help="With plug-in: write the page of it, from results alone; start nothing.")
]
Values = Annotated[
    str | None, typer.Option(help="What to vary over, e.g. 0.1,1,5 (default: the paper's).", rich_help_panel=WHAT)
]


@app.command()
def study(
    name: Name,
    method: Method = None,
    values: Values = None,
    data: options.CellData = None,
    memory: options.CellMemory = None,
    seeds: options.Seeds = "0-2",
    assignments: options.BranchAssignments = None,
    to: options.To = None,
    out: options.Out = Path("runs"),
    store: options.MoreStores = None,
    no_run: options.NoRun = False,
    plan: Plan = False,
    write: Write = None,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    workers: options.Workers = None,
    at_once: options.AtOnce = None,
    yes: options.Yes = False,
    quiet: options.Quiet = False,
    own: options.Import = None,
) -> None:
    """How S6MOD answers to its settings; plug-ins on every method.

    alpha, beta, patterns and routing: runs over its values, a table and a figure. plug-in: what S6MOD, its controls
    and MKD bring to every method (default: cifar100).
    """
    if name != "plug-in" and (method is None or write is not None):
        raise typer.BadParameter(f"expected METHOD and no --write for {name}; for instance s6mod study {name} er")
    if name == "plug-in" and (values is not None or assignments):
        raise typer.BadParameter("expected no --values and no --set for plug-in, which tunes nothing; leave them out")
    from s6mod.analysis.carry_out import How, carry_out
    from s6mod.analysis.plug_in import plug_in
    from s6mod.analysis.question import split_changes, whole_cell
    from s6mod.analysis.studies import study as ask
    from s6mod.experiments.perform import Means

    if method is None or name == "plug-in":
        question = plug_in(method.split(",") if method else None, data or "cifar100", memory, data_root)
    else:
        branch, others = split_changes(assignments or [])
        whole = whole_cell(method, data, memory, branch, data_root)
        question = ask(name, whole, _numbers(values, name)).over(others)
    means, no_run = Means(device, workers, at_once), no_run or write is not None
    how = How(out, store, data_root, means, no_run, yes, quiet, plan, write, f"plug-in --write {write}")
    leave(*carry_out(question, seeds, to, how, warn_of))


def _numbers(text: str | None, study: str) -> list[float] | None:
    kind, such = (int, "1,2,4") if study == "patterns" else (float, "0.1,1,5")
    try:
        return None if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as {such} for {study}, got {text!r}") from None
