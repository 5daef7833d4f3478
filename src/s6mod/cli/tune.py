"""``s6mod tune``: search good values of configuration fields for one cell."""

from pathlib import Path
from typing import Annotated

import typer

from s6mod.cli import options
from s6mod.cli.app import app, leave
from s6mod.cli.options import HOW, WHAT

What = Annotated[
    list[str],
    typer.Argument(
        help="A cell such as er+s6mod/digits/200, or a YAML file, or both.", autocompletion=options.complete_cell
    ),
]
Search = Annotated[
    list[str] | None,
    typer.Option(help='FIELD=SPACE: log:1e-4:1e-2, 0.1:0.9, 1:8 or "0.1|0.5|5"; repeatable.', rich_help_panel=WHAT),
]
Tasks = Annotated[
    int | None, typer.Option(min=1, help="First tasks of the stream that count (default: 3).", rich_help_panel=WHAT)
]
WholeStream = Annotated[
    bool, typer.Option("--whole-stream", help="All tasks count: a look into the future.", rich_help_panel=WHAT)
]
Seeds = Annotated[str | None, typer.Option(help="Seeds to average over (default: 100-102).", rich_help_panel=WHAT)]
ReportedSeeds = Annotated[bool, typer.Option("--reported-seeds", help="Allow seeds 0 to 9.", rich_help_panel=WHAT)]
HeldOut = Annotated[
    float | None,
    typer.Option(min=0, help="Share of the training images to judge by (default: 0.1).", rich_help_panel=WHAT),
]
Metric = Annotated[
    str | None, typer.Option(help="accuracy or anytime_accuracy (default: accuracy).", rich_help_panel=WHAT)
]
Trials = Annotated[int | None, typer.Option(min=1, help="Trials in all (default: 20).", rich_help_panel=HOW)]
NoPrune = Annotated[bool, typer.Option("--no-prune", help="Take every trial to its end.", rich_help_panel=HOW)]
Storage = Annotated[str | None, typer.Option(help="Database URL (default: an SQLite file).", rich_help_panel=HOW)]
Out = Annotated[Path, typer.Option(help="Parent of the study's folder.", rich_help_panel=HOW)]


@app.command()
def tune(
    what: What,
    search: Search = None,
    data: options.CellData = None,
    memory: options.CellMemory = None,
    tasks: Tasks = None,
    whole_stream: WholeStream = False,
    seeds: Seeds = None,
    reported_seeds: ReportedSeeds = False,
    held_out: HeldOut = None,
    metric: Metric = None,
    trials: Trials = None,
    no_prune: NoPrune = False,
    storage: Storage = None,
    out: Out = Path("tuning"),
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    workers: options.Workers = None,
    yes: options.Yes = False,
    quiet: options.Quiet = False,
    assignments: options.Assignments = None,
    own: options.Import = None,
) -> None:
    """Search for good settings of a learner; again, it goes on.

    By Optuna. The same command again goes on where it was, or helps where it is under way.
    """
    from s6mod.runs.compose import elsewhere
    from s6mod.tuning import search as work
    from s6mod.tuning.config import Tuning

    given: dict[str, object] = {
        "data": data,
        "memory": memory,
        "tasks": tasks,
        "whole_stream": whole_stream,
        "seeds": seeds,
    }
    given |= {"reported_seeds": reported_seeds or None, "metric": metric, "trials": trials}
    given |= {"prune": False if no_prune else None, "held_out": held_out}
    asked = work.compose_tuning(what, search or [], assignments or [], given)
    tuning = Tuning(asked, out, storage, elsewhere(data_root=data_root))
    found = work.search(tuning, device, workers, yes, (lambda text: None) if quiet else typer.echo)
    if found.best is not None:
        typer.echo(found.best)
    leave(*found.ending)
