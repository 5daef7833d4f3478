"""``s6mod study``: sensitivity, number of patterns and routing; what it shares with ``s6mod ablate``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from s6mod.cli.app import app, data_in

if TYPE_CHECKING:  # with torch, which help can do without
    from s6mod.analysis.question import Question
    from s6mod.analysis.study import Study

WHAT = "What to run"
HOW = "How to run it"

Learner = Annotated[
    str, typer.Argument(metavar="METHOD", help="A method, or a cell without branch: er, onpro/cifar100/2000.")
]
Data = Annotated[str | None, typer.Option(help="Data set (default: digits).", rich_help_panel=WHAT)]
Memory = Annotated[int | None, typer.Option(help="Memory size (default: the preset's).", rich_help_panel=WHAT)]
Seeds = Annotated[str, typer.Option(help="E.g. 0-4 or 0,2,5.", rich_help_panel=WHAT)]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="key=value for any field; branch.KEY=VALUE is for S6MOD alone; repeatable.", rich_help_panel=WHAT
    ),
]
To = Annotated[
    Path | None, typer.Option(help="Folder for figures and tables (default: OUT/studies/NAME).", rich_help_panel=HOW)
]
Out = Annotated[Path, typer.Option(help="Parent of the run folders.", rich_help_panel=HOW)]
Stores = Annotated[
    list[Path] | None,
    typer.Option(help="Where else done runs are looked for; repeatable (default: results, if there)."),
]
NoRun = Annotated[bool, typer.Option("--no-run", help="Draw what is finished; start nothing.", rich_help_panel=HOW)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HOW)]
DataRoot = Annotated[str | None, typer.Option(help="Where the data set's files are.", rich_help_panel=HOW)]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes on a CPU (default: one a core).", rich_help_panel=HOW)
]
AtOnce = Annotated[
    int | None, typer.Option(min=1, help="Runs that share a GPU (default: by free memory).", rich_help_panel=HOW)
]
Yes = Annotated[bool, typer.Option("--yes", help="Run on a CPU what is meant for a GPU.", rich_help_panel=HOW)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.", rich_help_panel=HOW)]


@dataclass(frozen=True)
class How:
    """How the runs of a question are found and run."""

    out: Path
    store: list[Path] | None
    device: str
    data_root: str | None
    workers: int | None
    at_once: int | None
    yes: bool
    quiet: bool


@app.command()
def study(
    name: Annotated[
        Literal["alpha", "beta", "patterns", "routing"],
        typer.Argument(metavar="STUDY", help="alpha, beta, patterns or routing."),
    ],
    method: Learner,
    values: Annotated[
        str | None, typer.Option(help="What to vary over, e.g. 0.1,1,5 (default: the paper's).", rich_help_panel=WHAT)
    ] = None,
    data: Data = None,
    memory: Memory = None,
    seeds: Seeds = "0-2",
    assignments: Assignments = None,
    to: To = None,
    out: Out = Path("runs"),
    store: Stores = None,
    no_run: NoRun = False,
    device: Device = "auto",
    data_root: DataRoot = None,
    workers: Workers = None,
    at_once: AtOnce = None,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """How S6MOD answers to alpha, beta, the number of patterns or its routing: runs, table and figure."""
    from s6mod.analysis.question import split_changes, whole_cell
    from s6mod.analysis.studies import study as ask

    branch, others = split_changes(assignments or [])
    whole = whole_cell(method, data, memory, branch, data_root)
    question = ask(name, whole, _numbers(values, name)).over(others)
    carry_out(question, seeds, to, no_run, How(out, store, device, data_root, workers, at_once, yes, quiet))


def _numbers(text: str | None, study: str) -> list[float] | None:
    kind, such = (int, "1,2,4") if study == "patterns" else (float, "0.1,1,5")
    try:
        return None if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as {such} for {study}, got {text!r}") from None


def carry_out(question: "Question", seeds: str, to: Path | None, no_run: bool, how: How) -> None:
    """Run what is missing of a question, answer it from all its finished runs, and show and write the answer."""
    from s6mod.analysis.question import answers
    from s6mod.cli.sweep import conclude, launch
    from s6mod.experiments.sweep import numbers, sweep_of
    from s6mod.report.matrix_picture import require_matplotlib
    from s6mod.runs.store import scan

    require_matplotlib()
    out, store = how.out, how.store
    folder = to or out / "studies" / question.name
    check_writable(folder)
    folders = [out, *(store if store is not None else [Path("results")])]
    found = scan(folder for folder in folders if folder.is_dir() or folder in (store or []))
    for problem in found.problems:
        typer.echo(f"warning: {problem}", err=True)
    elsewhere = {"engine": {"device": how.device}} | data_in(how.data_root)
    wanted = [(cell, seed) for cell in dict.fromkeys(question.cells.values()) for seed in numbers(seeds)]
    todo = sweep_of(wanted, {}, elsewhere, out, found)
    console, outcome = Console(emoji=False), None
    if not no_run:
        outcome = launch(todo, console, how.device, how.workers, how.at_once, 0, how.yes, how.quiet)
    runs = todo.finished()
    if runs or no_run:
        names = {(run.hash, run.own_data) for run in runs}  # a sweep takes each in one precision, whichever it finds
        same = [run for run in found.finished if (run.hash, run.own_data) in names]
        every = {run.path: run for run in (*same, *runs)}
        deliver(question.answer(answers(question, list(every.values()), todo.trainings)), folder, console)
    if outcome is not None:
        conclude(todo, outcome, len(runs))


def check_writable(folder: Path) -> None:
    """Refuse before the work, not after it, a folder that could not be written."""
    from s6mod.errors import ConfigError

    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(
            f"expected a folder that can be written for figures and tables, got {folder}; choose another --to"
        )


def beside(run: Path) -> Path:
    """Where studies of a run go unless told: beside its folder, also if that is the present one."""
    return (run if run.name else run.absolute()).parent / "studies"


def deliver(study: "Study", folder: Path, console: Console) -> None:
    """Write a study's files, print its tables and say where the files are."""
    from s6mod.columns import align
    from s6mod.paper.render import show

    study.write(folder)
    if study.filled is not None:
        show(study.filled, console)
    for each in study.tables:
        console.print(each.title, style="bold", highlight=False, markup=False)
        for line in align([each.columns, *each.rows], frozenset({0})):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(study.text, highlight=False, markup=False)
    console.print(str(folder), soft_wrap=True, highlight=False, markup=False)
