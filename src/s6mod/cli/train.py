"""``s6mod train``: one run, or one for each of several seeds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from s6mod.cli import options
from s6mod.cli.app import app
from s6mod.cli.options import HOW, MORE, WHAT

Method = Annotated[
    str | None,
    typer.Option(
        help="Method: er, ocm, onpro, mose, finetune, er-ace, scr, pcr, er-lwf, der, der++, agem, mir, gdumb; pairs: "
        "er-ccldc, ocm-ccldc, onpro-ccldc, er-ace-ccldc or der++-ccldc; or a word for a whole learner: best, swift, "
        "everyday (default: er).",
        autocompletion=options.complete_method,
        rich_help_panel=WHAT,
    ),
]
Branch = Annotated[
    str | None,
    typer.Option(
        help="Branch: s6mod, confidence, smoothing or none (default: none).",
        autocompletion=options.complete_branch,
        rich_help_panel=WHAT,
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        help="Teacher: mkd or none (default: none).",
        autocompletion=options.complete_teacher,
        rich_help_panel=WHAT,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Data set (see s6mod data), or the path of your own (default: digits).",
        autocompletion=options.complete_data,
        rich_help_panel=WHAT,
    ),
]
Memory = Annotated[
    int | None, typer.Option(help="Images kept for replay (default: by data set).", rich_help_panel=WHAT)
]
Seed = Annotated[int | None, typer.Option(parser=options.one_seed, help="Seed (default: 0).", rich_help_panel=WHAT)]
Seeds = Annotated[
    str | None, typer.Option(help="Several seeds, e.g. 0-4 or 0,2,5: side by side on a GPU.", rich_help_panel=HOW)
]
Out = Annotated[
    Path | None,
    typer.Option(help="Run folder, or of several seeds their parent (default: runs/NAME).", rich_help_panel=HOW),
]
Resume = Annotated[Path | None, typer.Option(help="Go on with the run in this folder.", rich_help_panel=HOW)]
ConfigFile = Annotated[Path | None, typer.Option(help="YAML file with any configuration fields.", rich_help_panel=MORE)]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print the whole configuration and stop.", rich_help_panel=MORE)
]


@app.command()
def train(
    method: Method = None,
    branch: Branch = None,
    teacher: Teacher = None,
    data: Data = None,
    memory: Memory = None,
    seed: Seed = None,
    seeds: Seeds = None,
    at_once: options.AtOnce = None,
    out: Out = None,
    resume: Resume = None,
    device: options.DeviceIfGiven = None,
    data_root: options.DataRoot = None,
    track: options.Track = None,
    quiet: options.Quiet = False,
    config: ConfigFile = None,
    assignments: options.Assignments = None,
    show_config: ShowConfig = False,
    own: options.Import = None,
) -> None:
    """Train a learner on a stream, for one seed or several."""
    given: dict[str, object] = {"method": method, "branch": branch, "teacher": teacher, "data": data}
    given |= {"memory": memory, "seed": seed}
    others: dict[str, object] = {"config": config, "out": out, "set": assignments or None, "seeds": seeds}
    _refuse_what_does_not_fit(given | others, resume is not None)
    from s6mod.experiments.training import Training
    from s6mod.runs.compose import elsewhere

    console, place = Console(emoji=False), elsewhere(device, data_root, track)
    if resume is not None:
        training = Training.resumed(resume, place)
    else:
        given["memory_size"] = given.pop("memory")
        training = Training.new(given, config, assignments or [], place, seeds, out)
    if show_config:
        typer.echo(training.yaml, nl=False)
    else:
        training.show(training.run(console, quiet, at_once), console)


def _refuse_what_does_not_fit(given: dict[str, object], resumes: bool) -> None:
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if resumes and names:
        raise typer.BadParameter(f"--resume takes the run's own configuration; leave out {', '.join(names)}")
    if "--seeds" not in names:
        return
    if "--seed" in names:
        raise typer.BadParameter("give --seed or --seeds, not both")
    assignments = given["set"] if isinstance(given["set"], list) else []
    if any(word.partition("=")[0].strip() == "seed" for word in assignments):
        raise typer.BadParameter("give --set seed or --seeds, not both")
