"""Options that several commands share, each explained once."""

from pathlib import Path
from typing import Annotated

import typer

WHAT = "What to run"
HOW = "How to run it"
MORE = "Everything else"


def _methods() -> list[str]:
    from s6mod.methods import methods  # a second, which only whoever completes a word pays

    return list(methods)


def _branches() -> list[str]:
    from s6mod.branch import branches

    return ["none", *branches]


def _teachers() -> list[str]:
    from s6mod.teacher import teachers

    return ["none", *teachers]


def _datasets() -> list[str]:
    from s6mod.presets import datasets

    return list(datasets())


def _begins(names: list[str], word: str) -> list[str]:
    return [name for name in names if name.startswith(word)]


def complete_method(incomplete: str) -> list[str]:
    """Methods that begin so, for a shell."""
    return _begins(_methods(), incomplete)


def complete_branch(incomplete: str) -> list[str]:
    """Branches that begin so."""
    return _begins(_branches(), incomplete)


def complete_teacher(incomplete: str) -> list[str]:
    """Teachers that begin so."""
    return _begins(_teachers(), incomplete)


def complete_data(incomplete: str) -> list[str]:
    """Published data sets that begin so."""
    return _begins(_datasets(), incomplete)


def complete_cell(incomplete: str) -> list[str]:
    """Cells that begin so: the next part of METHOD[+BRANCH][+TEACHER]/DATA, or of the last of several after commas."""
    before, comma, cell = incomplete.rpartition(",")
    learner, slash, data = cell.rpartition("/")
    method, plus, branch = cell.rpartition("+")
    if slash:
        found = [f"{learner}/{name}" for name in _begins(_datasets(), data)]
    elif plus:
        found = [f"{method}+{name}" for name in _begins(_branches() + _teachers(), branch) if name != "none"]
    else:
        found = _begins(_methods(), cell)
    return [before + comma + each for each in found]


def _import(context: typer.Context, names: list[str] | None) -> list[str] | None:
    if names and not context.resilient_parsing:  # whoever only completes a word runs nothing
        from s6mod.registry import plugins  # here, since most commands are given none

        plugins.bring(*names)
    return names


def one_seed(word: str) -> int:
    """The seed that a word names; a range would be read as a number that nobody meant: 0-2 as -2."""
    if not str(word).isdecimal():
        raise typer.BadParameter(f"expected one seed such as 3, got {word!r}; several are given as --seeds 0-2")
    return int(word)


CellData = Annotated[
    str | None,
    typer.Option(
        help="Data set of cells that name none, or the path of your own (default: digits).",
        autocompletion=complete_data,
        rich_help_panel=WHAT,
    ),
]
CellMemory = Annotated[
    int | None, typer.Option(help="Memory size of cells that name none (default: the preset's).", rich_help_panel=WHAT)
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="key=value for any field, e.g. method.optimizer.lr=0.001; repeatable.",
        rich_help_panel=MORE,
    ),
]
BranchAssignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="key=value for any field; branch.KEY=VALUE is for S6MOD alone; repeatable.", rich_help_panel=MORE
    ),
]
Learner = Annotated[
    str,
    typer.Argument(
        metavar="METHOD",
        help="A method, or a cell without branch: er, onpro/cifar100/2000.",
        autocompletion=complete_method,
    ),
]
Seeds = Annotated[str, typer.Option(help="E.g. 0-4 or 0,2,5.", rich_help_panel=WHAT)]
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        help="File or module of your own that registers a method, branch or teacher; it is run; repeatable.",
        callback=_import,
        is_eager=True,  # before any word that may name what it registers
        rich_help_panel=MORE,
    ),
]
Out = Annotated[Path, typer.Option(help="Parent of the run folders.", rich_help_panel=HOW)]
To = Annotated[
    Path | None,
    typer.Option(help="Folder for figures and tables (default: studies/NAME beside the runs).", rich_help_panel=HOW),
]
MoreStores = Annotated[
    list[Path] | None,
    typer.Option(
        "--store",
        help="Where else done runs are looked for; repeatable (default: results, if there).",
        rich_help_panel=HOW,
    ),
]
Stores = Annotated[
    list[Path] | None,
    typer.Option(
        "--store",
        help="Folder with runs or records; repeatable (default: runs and results, if there).",
    ),
]
_DEVICE = typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)
Device = Annotated[str, _DEVICE]
DeviceIfGiven = Annotated[str | None, _DEVICE]
DataRoot = Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes (default: one a core or GPU).", rich_help_panel=HOW)
]
AtOnce = Annotated[
    int | None, typer.Option(min=1, help="Runs that share a GPU (default: by free memory).", rich_help_panel=HOW)
]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Mirror the records: tensorboard, wandb or mlflow; repeatable.", rich_help_panel=HOW),
]
Yes = Annotated[bool, typer.Option("--yes", help="Run on a CPU what is meant for a GPU.", rich_help_panel=HOW)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.", rich_help_panel=HOW)]
NoRun = Annotated[bool, typer.Option("--no-run", help="Draw what is finished; start nothing.", rich_help_panel=HOW)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def form_of(named: str | None, json_output: bool) -> str:
    """Of ``--format`` and ``--json``, which is short for one of its words."""
    if json_output and named not in (None, "json"):
        raise typer.BadParameter(f"--json is short for --format json; leave out one of --json and --format {named}")
    return "json" if json_output else named or "terminal"
