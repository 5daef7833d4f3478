"""``s6mod train``: one run, or one for each of several seeds."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from s6mod.cli.app import app, data_in

if TYPE_CHECKING:  # with torch, which help can do without
    from s6mod.runs.config import RunConfig

PARTS = ("method", "branch", "data")  # what a preset is chosen by; each may be given as a bare name
WHAT = "What to run"
HOW = "How to run it"
MORE = "Everything else"


@app.command()
def train(
    method: Annotated[
        str | None,
        typer.Option(
            help="Method: er, ocm, onpro, mose, er-ccldc, ocm-ccldc, onpro-ccldc, finetune, er-ace, scr, pcr, er-lwf, "
            "der, der++, agem or mir (default: er).",
            rich_help_panel=WHAT,
        ),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(help="Branch: s6mod, confidence, smoothing or none (default: none).", rich_help_panel=WHAT),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set (see s6mod data), or the path of your own (default: digits).", rich_help_panel=WHAT
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Images kept for replay (default: by data set).", rich_help_panel=WHAT)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed (default: 0).", rich_help_panel=WHAT)] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds, e.g. 0-4 or 0,2,5: side by side on a GPU.", rich_help_panel=HOW)
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Runs that share a GPU (default: by free memory).", rich_help_panel=HOW)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder, or of several seeds their parent (default: runs/NAME).", rich_help_panel=HOW),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.", rich_help_panel=HOW)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)] = None,
    data_root: Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Mirror the records: tensorboard, wandb or mlflow; repeatable.", rich_help_panel=HOW),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.", rich_help_panel=HOW)] = False,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any configuration fields.", rich_help_panel=MORE)
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="key=value for any field, e.g. method.optimizer.lr=0.001; repeatable.",
            rich_help_panel=MORE,
        ),
    ] = None,
    show_config: Annotated[
        bool,
        typer.Option("--show-config", help="Print the whole configuration and stop.", rich_help_panel=MORE),
    ] = False,
) -> None:
    """Train a learner on a stream, for one seed or several."""
    flags = {"method": method, "branch": branch, "data": data, "memory": memory, "seed": seed}
    if resume is not None:
        given = [f"--{name}" for name, value in (flags | {"config": config, "out": out}).items() if value is not None]
        given += ["--set"] * bool(assignments) + ["--seeds"] * (seeds is not None)
        if given:
            raise typer.BadParameter(f"--resume takes the run's own configuration; leave out {', '.join(given)}")
    if seed is not None and seeds is not None:
        raise typer.BadParameter("give --seed or --seeds, not both")
    if seeds is not None and any(word.partition("=")[0].strip() == "seed" for word in assignments or []):
        raise typer.BadParameter("give --set seed or --seeds, not both")

    from s6mod.display import RunDisplay
    from s6mod.engine.settings import Engine
    from s6mod.experiments.sweep import numbers
    from s6mod.runs.config import RunConfig, read_run_config
    from s6mod.runs.execute import execute
    from s6mod.runs.folder import RunFolder
    from s6mod.runs.records import read_result
    from s6mod.runs.run import Run
    from s6mod.trackers import require

    console = Console(emoji=False)
    if resume is not None:
        base = RunConfig.parse(_elsewhere(read_run_config(resume).plain(), device, data_root, track))
        configs, folders = [base], [resume]
    else:
        base = _compose(flags, device, data_root, track, config, assignments or [])
        chosen = numbers(seeds) if seeds is not None else [base.seed]
        configs = [base.model_copy(update={"seed": number}) for number in chosen]
        names = [each.folder_name for each in configs]
        folders = [(out or Path("runs")) / name for name in names] if out is None or seeds is not None else [out]

    if show_config:
        import yaml

        typer.echo(yaml.safe_dump(base.plain(), sort_keys=False), nl=False)
        return

    require(base.output.track)
    if resume is not None and not base.output.track and (file := RunFolder(resume).result).exists():
        _show([read_result(file, sealed=False)], folders, console)  # whether or not the data is there
        return
    with RunDisplay(console, quiet) as display:
        dataset = configs[0].data.load().to(Engine.resolve(configs[0].engine).device)

        under_way: set[int] = set()  # runs that are not are somebody else's, or none

        def make(number: int, each: RunConfig, folder: Path) -> Run:
            anew = resume is None and seeds is None  # else the same command goes on where it was
            run = (Run.begin if anew else Run.open)(each, folder, dataset, display.watch(each))
            under_way.add(number)
            return run

        def failed(number: int, error: Exception) -> None:
            if number in under_way:
                RunFolder(folders[number]).note_failure(error)
            raise error

        pairs = zip(configs, folders, strict=True)
        results = execute([partial(make, number, *pair) for number, pair in enumerate(pairs)], at_once, failed)
    _show(results, folders, console)


def _show(results: list[dict[str, Any]], folders: list[Path], console: Console) -> None:
    from s6mod.display import result_table

    console.print(result_table(results))
    for folder in folders:
        console.print(str(folder), soft_wrap=True, highlight=False, markup=False)


def _compose(
    flags: dict[str, Any],
    device: str | None,
    data_root: str | None,
    track: list[str] | None,
    file: Path | None,
    assignments: list[str],
) -> "RunConfig":
    """Defaults, then the preset of what was chosen, then the file, then the flags, then --set: later ones win."""
    from s6mod.config import assign, merge, read_yaml
    from s6mod.errors import ConfigError
    from s6mod.presets import preset
    from s6mod.runs.config import RunConfig

    given = _named(read_yaml(file) if file is not None else {})
    for part in PARTS:
        if flags[part] is not None:
            given = merge(given, _named({part: flags[part]}))
    plain = {"memory_size": flags["memory"], "seed": flags["seed"]}
    given |= {name: value for name, value in plain.items() if value is not None}
    given = _elsewhere(given, device, data_root, track)
    for assignment in assignments:
        given = merge(given, _named(assign({}, assignment)))

    def name(part: str, default: str) -> str:
        named = given.get(part)
        return str(named.get("name", default)) if isinstance(named, dict) else default

    branch = name("branch", "none")
    values = merge(preset(name("method", "er"), branch, name("data", "digits"), given.get("memory_size")), given)
    own = given.get("branch")
    if branch == "none" and (own is None or isinstance(own, dict)):  # anything else is refused with all other fields
        if options := [key for key in own or {} if key != "name"]:
            raise ConfigError(f"expected a branch for branch.{options[0]}, got none; add --branch s6mod")
        values["branch"] = None
    return RunConfig.parse(values)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with a bare name of a part (``branch: s6mod``) or a path of data spelled out as a mapping."""
    from s6mod.data.catalog import spell

    bare = {k: v for k, v in values.items() if k in PARTS and isinstance(v, str)}
    return values | {k: spell(v) if k == "data" else {"name": v} for k, v in bare.items()}


def _elsewhere(
    values: dict[str, Any], device: str | None, data_root: str | None, track: list[str] | None
) -> dict[str, Any]:
    """The same configuration on another device, with the data in another folder or with other mirrors."""
    from s6mod.config import merge

    if device is not None:
        values = merge(values, {"engine": {"device": device}})
    values = merge(values, data_in(data_root))
    if track:
        values = merge(values, {"output": {"track": track}})
    return values
