"""``s6mod tune``: search good values of configuration fields for one cell."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s6mod.cli.app import app, data_in

if TYPE_CHECKING:  # with torch, which help can do without
    from s6mod.tuning.config import TuneConfig

WHAT = "What to search"
HOW = "How to run it"


@app.command()
def tune(
    what: Annotated[list[str], typer.Argument(help="A cell such as er+s6mod/digits/200, or a YAML file, or both.")],
    search: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=SPACE: log:1e-4:1e-2, 0.1:0.9, 1:8 or 0.1|0.5|5; repeatable.", rich_help_panel=WHAT),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set, if the cell names none, or the path of your own.", rich_help_panel=WHAT),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Memory size, if the cell names none.", rich_help_panel=WHAT)
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value for any field, the same in all trials; repeatable.", rich_help_panel=WHAT
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="First tasks of the stream that count (default: 3).", rich_help_panel=WHAT),
    ] = None,
    whole_stream: Annotated[
        bool, typer.Option("--whole-stream", help="All tasks count: a look into the future.", rich_help_panel=WHAT)
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds to average over (default: 100-102).", rich_help_panel=WHAT)
    ] = None,
    reported_seeds: Annotated[
        bool, typer.Option("--reported-seeds", help="Allow seeds 0 to 9.", rich_help_panel=WHAT)
    ] = False,
    held_out: Annotated[
        float | None,
        typer.Option(min=0, help="Share of the training images to judge by (default: 0.1).", rich_help_panel=WHAT),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="accuracy or anytime_accuracy (default: accuracy).", rich_help_panel=WHAT)
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials in all (default: 20).", rich_help_panel=HOW)] = None,
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="Take every trial to its end.", rich_help_panel=HOW)
    ] = False,
    storage: Annotated[
        str | None, typer.Option(help="Database URL (default: an SQLite file).", rich_help_panel=HOW)
    ] = None,
    out: Annotated[Path, typer.Option(help="Parent of the study's folder.", rich_help_panel=HOW)] = Path("tuning"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)] = "auto",
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: one a core or GPU).", rich_help_panel=HOW)
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run on a CPU what is meant for a GPU.", rich_help_panel=HOW)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only say what came out.", rich_help_panel=HOW)] = False,
) -> None:
    """Search with Optuna; the same command again goes on where it was, or helps where it is under way."""
    from s6mod.tuning.study import require_optuna

    require_optuna()
    from s6mod.cli.sweep import local
    from s6mod.experiments.plan import refuse_cpu
    from s6mod.tuning.config import Tuning
    from s6mod.tuning.launch import launch
    from s6mod.tuning.outcome import write_outcome
    from s6mod.tuning.study import open_study

    given = {
        "data": data,
        "memory": memory,
        "tasks": tasks,
        "held_out": held_out,
        "seeds": seeds,
        "reported_seeds": reported_seeds or None,
        "metric": metric,
        "prune": False if no_prune else None,
        "trials": trials,
    }
    config = _compose(what, search or [], assignments or [], given, whole_stream)
    elsewhere = data_in(data_root)
    tuning = Tuning(config, out, storage, elsewhere)
    tuning.check()
    here = local(device, workers, None, 0)
    refuse_cpu(tuning.costs(), yes or not here.on_cpu)
    tuning = tuning.on_present_data()
    study = open_study(tuning)
    devices = [here.devices[number % len(here.devices)] for number in range(workers or len(here.devices))]
    stopped = launch(tuning, devices, here.threads, (lambda text: None) if quiet else typer.echo)
    preset = write_outcome(tuning, study)
    if preset is not None:
        typer.echo(f"best: trial {study.best_trial.number}, {study.best_value:.2f} %: {preset}")
    if stopped is not None:
        typer.echo(f"stopped by {signal.Signals(stopped).name}; the same command goes on", err=True)
        raise typer.Exit(128 + stopped)
    if preset is None:
        from s6mod.errors import ConfigError

        raise ConfigError(f"expected a complete trial, got none; see why in {tuning.folder / 'history.json'}")


def _compose(
    what: list[str], search: list[str], assignments: list[str], given: dict[str, Any], whole_stream: bool
) -> "TuneConfig":
    """The tuning of the file and cell named, with the options laid over it."""
    from s6mod.config import assign, merge, read_yaml
    from s6mod.tuning.config import TuneConfig
    from s6mod.tuning.space import parse_search

    files = [Path(word) for word in what if word.endswith((".yaml", ".yml"))]
    cells = [word for word in what if Path(word) not in files]
    if len(files) > 1 or len(cells) > 1:
        raise typer.BadParameter("expected one cell and one file at most")
    values: dict[str, Any] = {}
    for file in files:
        values = read_yaml(file)
    values |= {name: value for name, value in given.items() if value is not None}
    values |= {"cell": cells[0]} if cells else {}
    values |= {"tasks": None} if whole_stream else {}
    values["search"] = {**values.get("search", {}), **parse_search(search)}
    fixed: dict[str, Any] = {}
    for assignment in assignments:
        fixed = assign(fixed, assignment)
    values["set"] = merge(values.get("set", {}), fixed)
    return TuneConfig.parse(values)
