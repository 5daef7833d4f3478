"""``s6mod sweep``: any set of cells and seeds, planned or run."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from s6mod.cli.app import app

WHAT = "What to run"
HOW = "How to run it"


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
            help="With --tables: both controls of every cell, and the paper's weights.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="Data set of cells that name none.  [default: digits]", rich_help_panel=WHAT)
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Memory size of cells that name none.", rich_help_panel=WHAT)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="E.g. 0-4 or 0,2,5.  [default: the paper's, or 0-2 for cells]", rich_help_panel=WHAT),
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
        typer.Option(help="Where else done runs are looked for; repeatable.  [default: results, if there]"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)] = "auto",
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on a CPU.  [default: one a core]", rich_help_panel=HOW)
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Runs that share a GPU.  [default: by free memory]", rich_help_panel=HOW)
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="How often a failed run is tried again.", rich_help_panel=HOW)
    ] = 0,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run on a CPU what is meant for a GPU.", rich_help_panel=HOW)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.", rich_help_panel=HOW)] = False,
) -> None:
    """Run cells over seeds; the same command again goes on where it was."""
    from s6mod.experiments.plan import print_plan
    from s6mod.experiments.store import scan
    from s6mod.experiments.sweep import make_sweep

    config = _compose(what or [], tables, controls, data, memory, seeds)
    usual = [folder for folder in (out, Path("results")) if folder.is_dir()]
    found = scan(usual if store is None else [*(folder for folder in usual if folder == out), *store])
    for problem in found.problems:
        typer.echo(f"warning: {problem}", err=True)
    elsewhere: dict[str, Any] = {"engine": {"device": device}}
    if data_root is not None:
        elsewhere["data"] = {"root": data_root}
    todo = make_sweep(config, assignments or [], elsewhere, out, found)
    if plan:
        print_plan(todo, Console())
    else:
        _run(todo, device, workers, at_once, retries, yes, quiet)


def _compose(
    what: list[str], tables: str | None, controls: bool, data: str | None, memory: int | None, seeds: str | None
) -> Any:
    """The sweep of the files and cells named, with the options laid over it."""
    from s6mod.config import merge
    from s6mod.experiments.sweep import SweepConfig, read_sweep

    files = [Path(word) for word in what if word.endswith((".yaml", ".yml"))]
    values: dict[str, Any] = {}
    for file in files:
        values = merge(values, read_sweep(file).model_dump(exclude_unset=True))
    given = {
        "cells": [word for word in what if Path(word) not in files],
        "tables": [name.strip() for name in (tables or "").split(",") if name.strip()],
        "controls": controls,
        "data": data,
        "memory": memory,
        "seeds": seeds,
    }
    return SweepConfig.parse(values | {name: value for name, value in given.items() if value})


def _run(
    todo: Any, device: str, workers: int | None, at_once: int | None, retries: int, yes: bool, quiet: bool
) -> None:
    from s6mod.experiments.launch import LocalLauncher
    from s6mod.experiments.progress import SweepDisplay
    from s6mod.experiments.render import show
    from s6mod.experiments.store import scan
    from s6mod.experiments.tables import Results, filled

    launcher = LocalLauncher.here(device, workers, at_once, retries)
    _check(todo, launcher.devices, yes)
    console = Console()
    with SweepDisplay(console, todo.jobs, todo.costs, quiet) as display:
        outcome = launcher.launch(todo.jobs, display)
    runs = scan([*todo.done, *(job.folder for job in todo.jobs if job.folder.is_dir())]).finished
    if runs:
        show(filled("all", Results(runs)), console)
    left = todo.trainings - len(runs)
    if outcome.signal is not None:
        name = signal.Signals(outcome.signal).name
        typer.echo(f"stopped by {name} with {left} of {todo.trainings} runs to go; the same command goes on", err=True)
        raise typer.Exit(128 + outcome.signal)
    if outcome.failures:
        for job, reason in outcome.failures.items():
            typer.echo(f"failed: {job}: {reason}", err=True)
        raise typer.Exit(1)


def _check(todo: Any, devices: tuple[str, ...], yes: bool) -> None:
    """Refuse at the door what cannot work or would take for ever."""
    from s6mod.errors import ConfigError
    from s6mod.experiments.plan import cpu_seconds, duration

    heavy = [cost for cost in todo.costs if cost is not None and cost.wants_gpu]
    if heavy and devices[0] == "cpu" and not yes:
        raise ConfigError(
            f"expected a GPU for {len(heavy)} runs whose presets want one, got a CPU, which would take about "
            f"{duration(cpu_seconds(heavy))}; give --yes to run them all the same, or --plan to see the cost"
        )
    for data in {job.config.data for job in todo.jobs}:
        data.load()  # a data set that is not there is one sentence now, not a failure of every run
