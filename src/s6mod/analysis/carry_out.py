"""A question carried out: what is missing of its runs is run, and the answer is written and shown."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from s6mod.analysis.question import Question, answers
from s6mod.analysis.study import Study, write_page
from s6mod.columns import align
from s6mod.errors import ConfigError
from s6mod.experiments.perform import Means, ending, perform
from s6mod.experiments.plan import print_pieces, print_plan
from s6mod.experiments.sweep import Sweep, numbers, sweep_of
from s6mod.paper.render import show
from s6mod.report.picture import require_matplotlib
from s6mod.runs.cells import Cell
from s6mod.runs.compose import elsewhere
from s6mod.runs.store import scan


@dataclass(frozen=True)
class How:
    """How the runs of a question are found and run."""

    out: Path  # parent of the run folders
    store: list[Path] | None  # where else done runs are looked for; None: results, if there
    data_root: str | None
    means: Means
    no_run: bool  # answer from what is finished
    yes: bool
    quiet: bool
    plan: bool = False  # only say what would be run and what it costs
    page: Path | None = None  # to write the answer to, in place of a folder
    command: str = ""  # which the page names: it writes the page


def carry_out(
    question: Question, seeds: str, to: Path | None, how: How, warn: Callable[[list[str]], None]
) -> tuple[int, list[str]]:
    """Run what is missing, answer from all finished runs, show and write the answer; exit code and last words."""
    folder = to or how.out / "studies" / question.name
    check_figures(folder if how.page is None else how.page.parent)
    folders = how.store if how.store is not None else [Path("results")]
    folders = folders if how.page is not None else [how.out, *folders]  # a page is of public records
    found = scan(folder for folder in folders if folder.is_dir() or folder in (how.store or []))
    warn(found.problems)
    place = elsewhere(how.means.device, how.data_root)

    def sweep(cells: Iterable[Cell]) -> Sweep:
        wanted = [(cell, seed) for cell in dict.fromkeys(cells) for seed in numbers(seeds)]
        return sweep_of(wanted, {"output": question.output}, place, how.out, found)

    todo = sweep(question.cells.values())
    console, outcome = Console(emoji=False), None
    if how.plan:
        print_plan(todo, console)
        parts = {
            command: sweep(question.cells[label] for label in labels) for command, labels in question.pieces.items()
        }
        print_pieces({f"{command} --seeds {seeds}": part for command, part in parts.items()}, console)
        return 0, []
    if not how.no_run:
        outcome = perform(todo, how.means.launcher(todo, how.out), console, how.yes, how.quiet)
    runs = todo.finished()
    if runs or how.no_run:
        names = {(run.hash, run.own_data) for run in runs}  # a sweep takes each in one precision, whichever it finds
        same = [run for run in found.finished if (run.hash, run.own_data) in names]
        every = {run.path: run for run in (*same, *runs)}
        study = question.answer(answers(question, list(every.values()), todo.trainings, place))
        if how.page is None:
            deliver(study, folder, console)
        else:
            write_page(study, how.page, how.command)
            console.print(str(how.page), soft_wrap=True, highlight=False, markup=False)
    return (0, []) if outcome is None else ending(todo, outcome, len(runs))


def study_of(runs: list[Path], make: Callable[[], Study], to: Path | None) -> None:
    """A study of finished runs: made, written and shown."""
    beside = (runs[0] if runs[0].name else runs[0].absolute()).parent / "studies"  # also of the present folder
    check_figures(to or beside)
    study = make()
    deliver(study, to or beside / study.name, Console(emoji=False))


def check_figures(folder: Path) -> None:
    """Refuse before the work, not after it, figures that could not be drawn or written there."""
    require_matplotlib()
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(
            f"expected a folder that can be written for figures and tables, got {folder}; choose another --to"
        )


def deliver(study: Study, folder: Path, console: Console) -> None:
    """Write a study's files, print its tables and say where the files are."""
    study.write(folder)
    if study.filled is not None:
        show(study.filled, console)
    for each in study.tables:
        console.print(each.title, style="bold", highlight=False, markup=False)
        for line in align([each.columns, *each.rows], frozenset({0})):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    for text in (study.text, *study.findings):
        console.print(text, highlight=False, markup=False)
    console.print(str(folder), soft_wrap=True, highlight=False, markup=False)
