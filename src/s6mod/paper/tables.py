"""Our results beside the paper's: each line of a table filled from the store.

Results that were computed in different precisions are never averaged: each precision has a row of its own, and gains
are paired within it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from s6mod.paper.estimate import Estimate, Verdict, paired, verdict
from s6mod.paper.published import Line, Metric, Section, table
from s6mod.runs.cells import Cell
from s6mod.runs.completion import base_setting, complete, departures, setting
from s6mod.runs.store import StoredRun

MOSE = ("mose", "moe-mose")  # whose published forgetting is over all T tasks


def as_published(metric: str, method: str) -> str:
    """The metric of a run that the published figures of a method are in."""
    return "forgetting_mose" if metric == "forgetting" and method in MOSE else metric


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
    gain: Estimate | None  # over the same method without a branch, paired by seed
    ms: float | None  # mean time of a step
    bytes_held: int | None  # between steps
    code: tuple[str, ...] = ()  # versions of the code that the results come from
    mixed: bool = False  # whether the gain pairs results of different numerics

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

    def summary(self) -> str:
        """How many rows came to which verdict."""
        counts = Counter(row.verdict.word for row in self.rows if row.verdict.word)
        return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or f"{len(self.rows)} rows"


Seeds = Mapping[int, StoredRun]


def mixed(ours: Seeds, base: Seeds) -> bool:
    """Whether runs of one seed differ in what a step computed, so that their difference is not the setting's alone."""
    return any(ours[seed].numerics != base[seed].numerics for seed in ours.keys() & base.keys())


class Results:
    """Finished runs by what was run and in which precision; of several with one seed, the first."""

    def __init__(self, runs: Iterable[StoredRun]) -> None:
        self.runs: dict[str, dict[str, dict[int, StoredRun]]] = defaultdict(lambda: defaultdict(dict))
        self.repeated = 0  # those that are not the first, such as runs that differ in their engine alone
        for run in runs:
            self.repeated += self.runs[run.setting][run.precision].setdefault(run.seed, run) is not run

    def fill(self, section: Section) -> list[Row]:
        """The rows of a section."""
        rows = []
        for line in section.lines:
            plain = complete(line.cell.values())
            found = self.runs.get(setting(plain), {})
            scores = section.scores or line.cell.scores
            possible = (
                self._row(section.title, line, precision, runs, base_setting(plain), section.metric, scores)
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
            sections.append(Section(f"{title}: {metric}", metric, tuple(lines)))
        return sections

    def _row(
        self, title: str, line: Line, precision: str, runs: Seeds, base: str, metric: Metric, scores: str | None
    ) -> Row | None:
        def values(of: Seeds) -> dict[int, float]:
            found = {
                seed: run.metric(as_published(metric, line.cell.method), scores) for seed, run in sorted(of.items())
            }
            return {seed: value for seed, value in found.items() if value is not None}

        ours = values(runs)
        if not ours:
            return None
        estimate = Estimate.of(list(ours.values()))
        branched = line.cell.learner != line.cell.method
        alone = self.runs.get(base, {}).get(precision, {}) if branched else {}
        gain = paired(ours, values(alone))
        results = [run.result for seed, run in runs.items() if seed in ours and run.result is not None]
        return Row(
            title,
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
            gain is not None and mixed(runs, alone),
        )


def filled(name: str, results: Results, only_run: bool = False) -> Filled:
    """A table of the paper by its name, or ``all``: every cell in the store, by accuracy and by forgetting."""
    if name == "all":
        title, sections = "All results", results.everything("accuracy") + results.everything("forgetting")
    else:
        paper = table(name, "all")
        title, sections = paper.title, list(paper.sections)
    rows = [row for section in sections for row in results.fill(section) if row.ours or not only_run]
    return Filled(name, title, rows)


def _empty(title: str, line: Line) -> Row:
    return Row(title, line.label, line.cell.name, "", (), None, line.paper, verdict(None, line.paper), None, None, None)


def _cell_of(run: StoredRun) -> Cell:
    """The cell of a stored run, with how it departs from the preset."""
    config = run.config
    branch = config["branch"]["name"] if config["branch"] else "none"
    teacher = config["teacher"]["name"] if config["teacher"] else "none"
    cell = Cell(config["method"]["name"], branch, config["data"]["name"], config["memory_size"], teacher=teacher)
    return replace(cell, changes=tuple(departures(config, complete(cell.values()))))


def _line(cell: Cell, told: Sequence[str]) -> Line:
    """The line of a cell; changes that are told elsewhere are left out."""
    changes = [change for change in cell.changes if change not in told]
    return Line(f"{cell.learner} ({', '.join(changes)})" if changes else cell.learner, cell)
