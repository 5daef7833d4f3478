"""A study before and after its runs: the cells it asks for by label, and the finished runs that answer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from s6mod.analysis.study import Study
from s6mod.config import assign, digest, merge
from s6mod.decimals import ranges
from s6mod.errors import ConfigError
from s6mod.experiments.plan import count
from s6mod.metrics import AccuracyMatrix
from s6mod.paper.published import Line, Metric, Section
from s6mod.paper.tables import Filled, Results, as_published
from s6mod.runs.cells import Cell, parse, whole_field
from s6mod.runs.completion import complete, setting
from s6mod.runs.compose import fitted
from s6mod.runs.config import RunConfig
from s6mod.runs.records import read_matrix
from s6mod.runs.store import StoredRun

NAMES: dict[Metric, str] = {
    "accuracy": "average accuracy, Acc (%)",
    "forgetting": "average forgetting, AF (%), lower is better",
    "learning_accuracy": "new-task accuracy, N-Acc (%)",
}
LONGEST = 200  # bytes of a folder's name, of the 255 that file systems take
Figures = Mapping[str, Sequence[Sequence[float]]]  # by label: the paper's Acc and AF, each with its plus-minus


@dataclass(frozen=True)
class Question:
    """What a study asks for, and how it is answered."""

    name: str
    title: str
    whole: Cell  # S6MOD as it is, which the study varies
    cells: dict[str, Cell]  # by label
    answer: Callable[["FoundRuns"], Study]
    paper: Figures
    pieces: dict[str, tuple[str, ...]] = field(default_factory=dict)  # commands that ask for a part, and its labels
    output: dict[str, Any] = field(default_factory=dict)  # what its runs write beside, which names none of them

    def over(self, changes: Sequence[str]) -> "Question":
        """The same with further ``key=value`` laid over every cell."""
        if not changes:
            return self

        def laid(cell: Cell) -> Cell:
            return replace(cell, changes=(*changes, *cell.changes))

        return replace(
            self,
            name=slug(self.name, *changes),
            title=f"{self.title}, {', '.join(changes)}",
            whole=laid(self.whole),
            cells={label: laid(cell) for label, cell in self.cells.items()},
            paper={},
        )


@dataclass(frozen=True)
class FoundRuns:
    """The finished runs of a question, all computed in one precision."""

    question: Question
    precision: str
    runs: dict[str, dict[int, StoredRun]]  # by label and seed; a label without runs is not there
    note: str  # seeds, device, and what is missing, in words

    def values(self, label: str, metric: Metric) -> dict[int, float]:
        """A metric in percent, by seed."""
        cell = self.question.cells[label]
        name = as_published(metric, cell.method)
        found = {seed: run.metric(name, cell.scores) for seed, run in self.runs.get(label, {}).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def matrices(self, label: str) -> dict[int, AccuracyMatrix]:
        """The accuracy matrices of the table that predicts, by seed."""
        scores = self.question.cells[label].scores
        return {
            seed: AccuracyMatrix.from_rows(read_matrix(run.path, scores))
            for seed, run in self.runs.get(label, {}).items()
        }

    def table(self) -> Filled:
        """A section for each metric, with the paper's figures where it has some."""
        results = Results(run for by_seed in self.runs.values() for run in by_seed.values())
        rows = []
        for column, metric in enumerate(NAMES):
            lines = []
            for label, cell in self.question.cells.items():
                figure = self.question.paper.get(label) if metric != "learning_accuracy" else None
                lines.append(Line(label, cell, (figure[column][0], figure[column][1]) if figure else None))
            rows += results.fill(Section(NAMES[metric], metric, tuple(lines)))
        return Filled(self.question.name, self.question.title, rows)


def whole_cell(
    text: str, data: str | None, memory: int | None, changes: Sequence[str] = (), folder: str | None = None
) -> Cell:
    """The cell that a study varies: the method named, with S6MOD, and ``branch.KEY=VALUE`` laid over it.

    ``folder``: where prepared data sets lie.
    """
    cell = parse(text, data, memory, folder)
    if cell.branch not in ("none", "s6mod") or cell.changes:
        raise ConfigError(
            f"expected METHOD[/DATA/MEMORY], got {text!r}; leave out its branch and give changes by --set"
        )
    whole = replace(cell, branch="s6mod", changes=tuple(changes))
    RunConfig.parse(fitted(whole.values()))  # says what is wrong with a change
    expect(whole, "name", "s6mod", "which varies S6MOD")
    return whole


def expect(whole: Cell, option: str, value: str | None, why: str) -> None:
    """Refuse a branch that has another value there, with which a study would not show what its labels say."""
    given = complete(whole.values())["branch"][option]
    if given != value:
        raise ConfigError(
            f"expected branch.{option}={value or 'null'} in this study, {why}, got {given}; leave it out of --set"
        )


def split_changes(assignments: Sequence[str]) -> tuple[list[str], list[str]]:
    """``key=value`` of the branch, which S6MOD alone takes, and of everything else, which every cell takes."""
    for assignment in assignments:
        assign({}, assignment)  # says what is wrong with it
        if whole_field(assignment) != assignment:
            raise ConfigError(
                f"expected a dotted field such as stream.batch_size=20 in --set, got {assignment!r}; name it whole"
            )
        if assignment.partition("=")[0].strip() in ("method.name", "data.name"):  # labels would tell of another
            raise ConfigError(
                f"expected method and data set as METHOD/DATA/MEMORY, got {assignment!r} in --set; name it there"
            )
    branch = [assignment for assignment in assignments if assignment.startswith("branch.")]
    return branch, [assignment for assignment in assignments if assignment not in branch]


def branch_option(cell: Cell, name: str) -> float:
    """An option of the branch of a cell, its default included."""
    return float(complete(cell.values())["branch"][name])


def slug(*parts: str) -> str:
    """A name for a folder; of one that is too long, the beginning and a digest of the whole."""
    name = "-".join(part.replace("/", "-") for part in parts)
    if len(name.encode()) <= LONGEST:
        return name
    return f"{name.encode()[:LONGEST].decode(errors='ignore')}-{digest({'name': name})}"


def answers(
    question: Question, runs: Sequence[StoredRun], wanted: int, place: Mapping[str, Any] | None = None
) -> FoundRuns:
    """Sort finished runs by the cells that asked for them; ``wanted``: how many runs there would be in all.

    ``place``: where their data lies, as far as the cells do not say it.
    """
    if not runs:
        raise ConfigError("expected finished runs for the study, got none; leave out --no-run, or name their --store")
    counts = Counter(run.precision for run in runs)
    precision = max(sorted(counts), key=counts.__getitem__)
    chosen = Results(run for run in runs if run.precision == precision)
    found = {
        label: dict(sorted(chosen.runs[name][precision].items()))
        for label, cell in question.cells.items()
        if (name := setting(complete(fitted(merge(cell.values(), place or {}))))) in chosen.runs
    }
    used = {id(run): run for by_seed in found.values() for run in by_seed.values()}
    seeds = sorted({run.seed for run in used.values()})
    devices = sorted({str(run.environment.get("device")) for run in used.values()})
    note = f"{count(len(used), 'run')}, seeds {ranges(seeds)}, {precision} on {', '.join(devices)}."
    if len(used) < wanted:
        note += f" {wanted - len(used)} of {wanted} runs are missing here: not finished, or in another precision."
    return FoundRuns(question, precision, found, note)
