"""``s6mod sweep``: any set of cells and seeds, planned or run."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app, leave, warn_of
from s6mod.cli.options import HOW, WHAT
from s6mod.cli.table import tell_left_out

CLUSTER = "On a cluster"


What = Annotated[
    list[str] | None,
    typer.Argument(
        help="Cells such as er,er+s6mod or onpro+s6mod/cifar100/2000, and YAML files of sweeps.",
        autocompletion=options.complete_cell,
    ),
]
Tables = Annotated[str | None, typer.Option(help="Tables of the paper, e.g. 1,2 or ablation.", rich_help_panel=WHAT)]
Controls = Annotated[
    bool,
    typer.Option(
        "--controls",
        help="With --tables: both controls of every cell, and S6MOD in its other settings.",
        rich_help_panel=WHAT,
    ),
]
Seeds = Annotated[
    str | None, typer.Option(help="E.g. 0-4 or 0,2,5 (default: the paper's, or 0-2 for cells).", rich_help_panel=WHAT)
]
Plan = Annotated[bool, typer.Option("--plan", help="Say what it would run and what it would cost; start nothing.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes on a CPU, or tasks or jobs of a cluster at once (default: one a core, or all).",
        rich_help_panel=HOW,
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="How often a failed run is tried again (default: 0; a dead worker of a cluster: 3).",
        rich_help_panel=HOW,
    ),
]
On = Annotated[Literal["local", "ray", "slurm"], typer.Option(help="Where to run.", rich_help_panel=CLUSTER)]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray: HOST:PORT or auto (default: start one here).", rich_help_panel=CLUSTER)
]
TimeLimit = Annotated[
    int | None, typer.Option(min=5, help="Minutes of a SLURM job (default: 240).", rich_help_panel=CLUSTER)
]
Sbatch = Annotated[
    list[str] | None, typer.Option(help="Option of sbatch, e.g. partition=gpu; repeatable.", rich_help_panel=CLUSTER)
]
Attach = Annotated[
    bool, typer.Option("--attach", help="Only watch: the sweep runs elsewhere.", rich_help_panel=CLUSTER)
]


@app.command()
def sweep(
    what: What = None,
    tables: Tables = None,
    controls: Controls = False,
    data: options.CellData = None,
    memory: options.CellMemory = None,
    seeds: Seeds = None,
    plan: Plan = False,
    out: options.Out = Path("runs"),
    store: options.MoreStores = None,
    device: options.Device = "auto",
    data_root: options.DataRoot = None,
    workers: Workers = None,
    at_once: options.AtOnce = None,
    retries: Retries = None,
    track: options.Track = None,
    yes: options.Yes = False,
    quiet: options.Quiet = False,
    on: On = "local",
    address: Address = None,
    time_limit: TimeLimit = None,
    sbatch: Sbatch = None,
    attach: Attach = False,
    assignments: options.Assignments = None,
    own: options.Import = None,
) -> None:
    """Train many learners over seeds; again, it goes on.

    A cell names what is run but for its seed: er, er+s6mod, or with data and memory er+s6mod/cifar100/2000. The same
    command again goes on where it was.
    """
    from s6mod.experiments import perform
    from s6mod.experiments.plan import print_plan
    from s6mod.experiments.sweep import compose_sweep, make_sweep
    from s6mod.runs.compose import elsewhere
    from s6mod.runs.store import scan

    names = [name.strip() for name in (tables or "").split(",") if name.strip()]
    given = {"tables": names or None, "controls": controls or None, "data": data, "memory": memory, "seeds": seeds}
    asked = compose_sweep(what or [], given)
    found = scan(_stores(out, store))
    warn_of(found.problems)
    todo = make_sweep(asked, assignments or [], elsewhere(device, data_root, track), out, found)
    console = Console(emoji=False)
    if plan:
        print_plan(todo, console)
        return
    if attach:
        outcome = perform.attach(todo, console, quiet)
    else:
        means = perform.Means(device, workers, at_once, retries, on, address, time_limit, tuple(sbatch or ()))
        launcher = means.launcher(todo, out)
        outcome = perform.perform(todo, launcher, console, yes, quiet, ", or --plan to see the cost")
    finished, repeated = perform.show_finished(todo, console)
    tell_left_out(repeated)
    leave(*perform.ending(todo, outcome, finished, watching=attach))


def _stores(out: Path, store: list[Path] | None) -> list[Path]:
    """Where done runs are looked for: among those of this sweep, and in the folders named, or in results."""
    usual = [folder for folder in (out, Path("results")) if folder.is_dir()]
    return usual if store is None else [*(folder for folder in usual if folder == out), *store]
