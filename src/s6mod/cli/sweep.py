"""``s6mod sweep``: any set of cells and seeds, planned or run."""

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from s6mod.cli.app import app, data_in
from s6mod.cli.table import tell_left_out

if TYPE_CHECKING:  # with torch, which plans and help can do without
    from s6mod.experiments.launch import Launcher, LocalLauncher, Outcome
    from s6mod.experiments.sweep import Sweep, SweepConfig

WHAT = "What to run"
HOW = "How to run it"
CLUSTER = "On a cluster"


class Place(StrEnum):
    """Where runs are run."""

    local = "local"
    ray = "ray"
    slurm = "slurm"


@app.command()
def sweep(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Cells such as er,er+s6mod or onpro+s6mod/cifar100/2000, and YAML files of sweeps."),
    ] = None,
    tables: Annotated[
        str | None, typer.Option(help="Tables of the paper, e.g. 1,2 or ablation.", rich_help_panel=WHAT)
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="With --tables: both controls of every cell, and S6MOD in its other settings.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set of cells that name none, or the path of your own (default: digits).", rich_help_panel=WHAT
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Memory size of cells that name none.", rich_help_panel=WHAT)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="E.g. 0-4 or 0,2,5 (default: the paper's, or 0-2 for cells).", rich_help_panel=WHAT),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value for any field, laid over every cell; repeatable.", rich_help_panel=WHAT),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would run and what it would cost; start nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Parent of the run folders.", rich_help_panel=HOW)] = Path("runs"),
    store: Annotated[
        list[Path] | None,
        typer.Option(help="Where else done runs are looked for; repeatable (default: results, if there)."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)] = "auto",
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes on a CPU, or tasks or jobs of a cluster at once (default: one a core, or all).",
            rich_help_panel=HOW,
        ),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Runs that share a GPU (default: by free memory).", rich_help_panel=HOW)
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How often a failed run is tried again (default: 0; a dead worker of a cluster: 3).",
            rich_help_panel=HOW,
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Mirror the records: tensorboard, wandb or mlflow; repeatable.", rich_help_panel=HOW),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run on a CPU what is meant for a GPU.", rich_help_panel=HOW)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.", rich_help_panel=HOW)] = False,
    on: Annotated[Place, typer.Option(help="Where to run.", rich_help_panel=CLUSTER)] = Place.local,
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray: HOST:PORT or auto (default: start one here).", rich_help_panel=CLUSTER),
    ] = None,
    time_limit: Annotated[
        int | None, typer.Option(min=5, help="Minutes of a SLURM job (default: 240).", rich_help_panel=CLUSTER)
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="Option of sbatch, e.g. partition=gpu; repeatable.", rich_help_panel=CLUSTER),
    ] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Only watch: the sweep runs elsewhere.", rich_help_panel=CLUSTER)
    ] = False,
) -> None:
    """Run cells over seeds; the same command again goes on where it was."""
    from s6mod.experiments.plan import print_plan
    from s6mod.experiments.sweep import make_sweep
    from s6mod.runs.store import scan

    config = _compose(what or [], tables, controls, data, memory, seeds)
    _refuse_what_has_no_effect(config, out, assignments or [])
    usual = [folder for folder in (out, Path("results")) if folder.is_dir()]
    found = scan(usual if store is None else [*(folder for folder in usual if folder == out), *store])
    for problem in found.problems:
        typer.echo(f"warning: {problem}", err=True)
    elsewhere: dict[str, Any] = {"engine": {"device": device}} | data_in(data_root)
    if track:
        elsewhere["output"] = {"track": track}
    todo = make_sweep(config, assignments or [], elsewhere, out, found)
    if plan:
        print_plan(todo, Console(emoji=False))
    elif attach:
        _attach(todo, quiet)
    else:
        how = {"workers": workers, "at_once": at_once, "retries": retries}
        _run(todo, _launcher(todo, on, out, device, address, time_limit, sbatch or [], how), yes, quiet)


def _compose(
    what: list[str], tables: str | None, controls: bool, data: str | None, memory: int | None, seeds: str | None
) -> "SweepConfig":
    """The sweep of the files and cells named, with the options laid over it."""
    from s6mod.config import merge
    from s6mod.experiments.sweep import SweepConfig, read_sweep

    files = [Path(word) for word in what if word.endswith((".yaml", ".yml"))]
    values: dict[str, Any] = {}
    for file in files:
        values = merge(values, read_sweep(file).model_dump(exclude_unset=True))
    given = {
        "cells": [word for word in what if Path(word) not in files] or None,
        "tables": [name.strip() for name in (tables or "").split(",") if name.strip()] or None,
        "controls": controls or None,
        "data": data,
        "memory": memory,
        "seeds": seeds,
    }
    return SweepConfig.parse(values | {name: value for name, value in given.items() if value is not None})


def _refuse_what_has_no_effect(config: "SweepConfig", out: Path, assignments: list[str]) -> None:
    from s6mod.errors import ConfigError

    if config.controls and not config.tables:
        raise ConfigError(
            "expected --controls with --tables, got it with cells alone; name cells such as er+confidence"
        )
    if "seed" in config.set or any(word.partition("=")[0].strip() == "seed" for word in assignments):
        raise ConfigError("expected the seeds of a sweep in --seeds, got one among its fields; give --seeds")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"expected a folder for the runs, got the file {out}; choose another --out")


def _launcher(
    todo: "Sweep",
    on: Place,
    out: Path,
    device: str,
    address: str | None,
    time_limit: int | None,
    sbatch: list[str],
    how: dict[str, int | None],
) -> "Launcher":
    """The launcher that was chosen, connected and checked."""
    from s6mod.errors import ConfigError

    if address is not None and on is not Place.ray:
        raise ConfigError(f"expected --address with --on ray, got it with --on {on}; drop one of them")
    if (time_limit is not None or sbatch) and on is not Place.slurm:
        raise ConfigError(f"expected --time-limit and --sbatch with --on slurm, got --on {on}; drop one of them")
    if on is Place.ray:
        from s6mod.experiments.launch_ray import RayLauncher

        return RayLauncher.connected(address, device, **how)
    if on is Place.slurm:
        from s6mod.experiments.launch_slurm import SlurmLauncher

        heavy = any(cost is not None and cost.wants_gpu for cost in todo.costs)
        return SlurmLauncher.checked(out, device, heavy, time_limit, sbatch, **how)
    return local(device, **how)


def local(device: str, workers: int | None, at_once: int | None, retries: int | None) -> "LocalLauncher":
    """The launcher of this machine; a device that is not there is refused."""
    from s6mod.engine.settings import Engine, EngineConfig
    from s6mod.experiments.launch import LocalLauncher

    Engine.resolve(EngineConfig(device=device))
    return LocalLauncher.here(device, workers, at_once, retries or 0)


def _run(todo: "Sweep", launcher: "Launcher", yes: bool, quiet: bool) -> None:
    console = Console(emoji=False)
    outcome = _watched(todo, console, launcher, yes, quiet, ", or --plan to see the cost")
    conclude(todo, outcome, _show_finished(todo, console))


def _attach(todo: "Sweep", quiet: bool) -> None:
    """Watch the runs of a sweep that goes on elsewhere."""
    from s6mod.experiments.follow import Onlooker
    from s6mod.experiments.plan import count
    from s6mod.experiments.progress import SweepDisplay

    console = Console(emoji=False)
    with SweepDisplay(console, todo.jobs, todo.costs, quiet) as display:
        outcome = Onlooker().launch(todo.jobs, display)
    left = todo.trainings - _show_finished(todo, console)
    if outcome.signal is not None:
        typer.echo(
            f"no longer watching, with {left} of {count(todo.trainings, 'run')} to go; the sweep goes on", err=True
        )
        raise typer.Exit(128 + outcome.signal)
    conclude(todo, outcome, todo.trainings - left)


def _show_finished(todo: "Sweep", console: Console) -> int:
    """Print the table of what came out; how many runs have a result."""
    from s6mod.paper.render import show
    from s6mod.paper.tables import Results, filled

    runs = todo.finished()
    if runs:
        results = Results(runs)
        show(filled("all", results), console)
        tell_left_out(results.repeated)
    return len(runs)


def launch(
    todo: "Sweep",
    console: Console,
    device: str,
    workers: int | None,
    at_once: int | None,
    retries: int,
    yes: bool,
    quiet: bool,
) -> "Outcome":
    """Take the jobs of a sweep to their ends on this machine, with a display; how it ended."""
    return _watched(todo, console, local(device, workers, at_once, retries), yes, quiet)


def _watched(
    todo: "Sweep", console: Console, launcher: "Launcher", yes: bool, quiet: bool, advice: str = ""
) -> "Outcome":
    from s6mod.experiments.progress import SweepDisplay

    _check(todo, launcher.on_cpu, yes, advice)
    with SweepDisplay(console, todo.jobs, todo.costs, quiet) as display:
        return launcher.launch(todo.jobs, display)


def conclude(todo: "Sweep", outcome: "Outcome", finished: int) -> None:
    """Say what stopped or failed, and leave with its exit code."""
    from s6mod.experiments.plan import count

    left = todo.trainings - finished
    if outcome.signal is not None:
        name = signal.Signals(outcome.signal).name
        typer.echo(
            f"stopped by {name} with {left} of {count(todo.trainings, 'run')} to go; the same command goes on", err=True
        )
        raise typer.Exit(128 + outcome.signal)
    if outcome.failures:
        for job, reason in outcome.failures.items():
            typer.echo(f"failed: {job}: {reason}", err=True)
        raise typer.Exit(1)


def _check(todo: "Sweep", on_cpu: bool, yes: bool, advice: str) -> None:
    """Refuse at the door what cannot work or would take for ever."""
    from s6mod.data import make_plan
    from s6mod.experiments.plan import refuse_cpu
    from s6mod.trackers import require

    refuse_cpu(todo.costs, yes or not on_cpu, advice)
    for data in {job.config.data for job in todo.jobs} - todo.read:
        found = data.load()  # a data set that is not there is one sentence now, not a failure of every run
        for stream in {job.config.stream for job in todo.jobs if job.config.data == data}:
            make_plan(found.train_labels, found.num_classes, stream, seed=0)  # the same of tasks that it cannot fill
    for job in todo.jobs[:1]:
        require(job.config.output.track)
