"""Our results beside the paper's: each line of a table filled from the store.

Results that were computed in different precisions are never averaged: each precision has a row of its own, and gains
are paired within it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, get_args

from s6mod.errors import ConfigError
from s6mod.learner.preset import PARTS
from s6mod.paper.estimate import Estimate, Verdict, paired, verdict
from s6mod.paper.published import Line, Metric, Section, table
from s6mod.runs.cells import Cell, parse, whole_field
from s6mod.runs.completion import base_setting, complete, departures, setting
from s6mod.runs.store import StoredRun

MOSE = ("mose", "moe-mose")  # whose published forgetting is over all T tasks


def as_published(metric: str, method: str) -> str:
    """The metric of a run that the published figures of a method are in."""
    return "forgetting_mose" if metric == "forgetting" and method in MOSE else metric


# Whether the two sides of a gain come from one version of the code, from versions whose steps compute the same, from
# versions of before that was counted, or from such as compute otherwise, so that their difference is not the setting's
# alone.
Sides = Literal["one version", "same numerics", "not known", "other numerics"]


@dataclass(frozen=True)
class Row:
    """One line of a table in one precision; without results there is one row without a precision."""

    section: str
    learner: str
    cell: str
    precision: str
    seeds: tuple[int, ...]
    ours: Estimate | None
    paper: tuple[float, float] | None
    verdict: Verdict
    gain: Estimate | None  # over the same method without a branch, or what was asked for, paired by seed
    ms: float | None  # mean time of a step
    bytes_held: int | None  # between steps
    code: tuple[str, ...] = ()  # versions of the code that the results come from
    sides: Sides | None = None  # of the gain

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return self.ours.mean - self.paper[0] if self.ours and self.paper else None


@dataclass(frozen=True)
class Filled:
    """A table with its rows."""

    name: str
    title: str
    rows: list[Row]
    over: str = "the same method without a branch"  # what gains are over

    def summary(self) -> str:
        """How many rows came to which verdict."""
        counts = Counter(row.verdict.word for row in self.rows if row.verdict.word)
        return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or f"{len(self.rows)} rows"


Seeds = Mapping[int, StoredRun]


def sides(ours: Seeds, base: Seeds) -> Sides:
    """What holds for all seeds that both have."""
    order = get_args(Sides)
    pairs = [(ours[seed], base[seed]) for seed in ours.keys() & base.keys()]
    found: Sides = max((_of_pair(*pair) for pair in pairs), key=order.index, default="one version")
    return found


def _of_pair(run: StoredRun, other: StoredRun) -> Sides:
    if run.numerics != other.numerics:
        return "other numerics"
    versions = {str(each.environment.get("source") or "") for each in (run, other)}
    if len(versions) == 1 and "" not in versions:
        return "one version"
    return "not known" if run.numerics is None else "same numerics"


class Results:
    """Finished runs by what was run and in which precision; of several with one seed, the first."""

    def __init__(self, runs: Iterable[StoredRun]) -> None:
        self.runs: dict[str, dict[str, dict[int, StoredRun]]] = defaultdict(lambda: defaultdict(dict))
        self.repeated = 0  # those that are not the first, such as runs that differ in their engine alone
        for run in runs:
            self.repeated += self.runs[run.setting][run.precision].setdefault(run.seed, run) is not run

    def fill(self, section: Section, over: Cell | None = None) -> list[Row]:
        """The rows of a section; gains are ``over`` a learner, or over the same method without a branch."""
        rows = []
        for line in section.lines:
            plain = complete(line.cell.values())
            found = self.runs.get(setting(plain), {})
            base = _beside(over, line.cell, section) if over is not None else line.cell
            reference = base_setting(plain) if over is None else setting(complete(base.values()))
            possible = (
                self._row(section, line, precision, runs, base, self.runs.get(reference, {}).get(precision, {}))
                for precision, runs in sorted(found.items())
            )
            filled = [row for row in possible if row is not None]
            rows += filled or ([] if line.control else [_empty(section.title, line)])
        return rows

    def everything(self, metric: Metric) -> list[Section]:
        """A section for each data set and memory size in the store, with all that was run on it, published or not."""
        cells: dict[tuple[str, int], list[Cell]] = defaultdict(list)
        for by_precision in self.runs.values():
            run = next(iter(next(iter(by_precision.values())).values()))
            cells[run.config["data"]["name"], run.config["memory_size"]].append(_cell_of(run))
        sections = []
        for (data, memory), group in sorted(cells.items()):
            shared = [change for change in group[0].changes if all(change in cell.changes for cell in group)]
            title = ", ".join([data, f"M = {memory}", *shared])
            lines = sorted((_line(cell, shared) for cell in group), key=lambda line: line.label)
            sections.append(Section(f"{title}: {metric}", metric, tuple(lines), shared=tuple(shared)))
        return sections

    def _row(self, section: Section, line: Line, precision: str, runs: Seeds, base: Cell, alone: Seeds) -> Row | None:
        def values(of: Seeds, cell: Cell) -> dict[int, float]:
            metric, scores = as_published(section.metric, cell.method), section.scores or cell.scores
            found = {seed: run.metric(metric, scores) for seed, run in sorted(of.items())}
            return {seed: value for seed, value in found.items() if value is not None}

        ours = values(runs, line.cell)
        if not ours:
            return None
        estimate = Estimate.of(list(ours.values()))
        itself = runs is alone and base.scores == line.cell.scores
        gain = None if itself else paired(ours, values(alone, base))
        results = [run.result for seed, run in runs.items() if seed in ours and run.result is not None]
        return Row(
            section.title,
            line.label,
            line.cell.name,
            precision,
            tuple(ours),
            estimate,
            line.paper,
            verdict(estimate, line.paper),
            gain,
            fmean(result["ms_per_step"] for result in results),
            max(int(result["bytes_held"]) for result in results),
            tuple(sorted({str(result["environment"].get("source")) for result in results})),
            sides(runs, alone) if gain is not None else None,
        )


def filled(name: str, results: Results, only_run: bool = False, over: str | None = None) -> Filled:
    """A table of the paper by its name, or ``all``: every cell in the store, by accuracy and by forgetting.

    ``over``: the learner that gains are measured from, such as ``er`` or ``er/method.optimizer.lr=0.2``, on the data of
    each row and with its settings, as its label has it; None: the same method without a branch.
    """
    reference = None if over is None else _learner(over)
    if name == "all":
        title, sections = "All results", results.everything("accuracy") + results.everything("forgetting")
    else:
        paper = table(name, "all")
        title, sections = paper.title, list(paper.sections)
    rows = [row for section in sections for row in results.fill(section, reference) if row.ours or not only_run]
    return Filled(name, title, rows) if over is None else Filled(name, title, rows, over)


def _empty(title: str, line: Line) -> Row:
    return Row(title, line.label, line.cell.name, "", (), None, line.paper, verdict(None, line.paper), None, None, None)


def _learner(text: str) -> Cell:
    """The learner that ``text`` names, on whatever data."""
    _, *rest = text.split("/")
    if any("=" not in part for part in rest):
        raise ConfigError(f"expected a learner such as er or er+s6mod/beta=5, got {text!r}; leave out data and memory")
    return parse(text)


def _beside(over: Cell, cell: Cell, section: Section) -> Cell:
    """The learner of ``over`` on the data of ``cell`` and in its settings; of those of method, branch and teacher only
    such as the whole section has.
    """
    told = section.shared if any(line.cell.learner == over.learner for line in section.lines) else ()
    common = (
        c for c in cell.changes if c in told or not whole_field(c).startswith(tuple(f"{part}." for part in PARTS))
    )
    return replace(over, data=cell.data, memory=cell.memory, root=cell.root, changes=()).but(*common, *over.changes)


def _cell_of(run: StoredRun) -> Cell:
    """The cell of a stored run, with how it departs from the preset."""
    cell = Cell.of(run.config)
    return replace(cell, changes=tuple(departures(run.config, complete(cell.values()))))


def _line(cell: Cell, told: Sequence[str]) -> Line:
    """The line of a cell; changes that are told elsewhere are left out."""
    changes = [change for change in cell.changes if change not in told]
    return Line(f"{cell.learner} ({', '.join(changes)})" if changes else cell.learner, cell)
