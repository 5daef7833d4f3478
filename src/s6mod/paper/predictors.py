"""What could have predicted, from the same trainings: accuracy by weights, statistics and scores, one column a cell.

A run scores all of them at its end (``output.predictors``). Results in different precisions are never averaged.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from s6mod.columns import align
from s6mod.decimals import spread
from s6mod.paper.estimate import Estimate
from s6mod.runs.store import StoredRun


@dataclass(frozen=True)
class Compared:
    """Final accuracy of every combination, in each cell where it was scored."""

    cells: list[str]
    rows: dict[str, list[Estimate | None]]  # by weights/statistics/scores, best first; one entry for each cell


def compared(runs: Iterable[StoredRun]) -> Compared:
    """The combinations of these runs; those without (older ones, unfinished ones) take no part.

    Best first: by the mean over the cells that a combination was scored in.
    """
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for name, accuracies in (run.result or {}).get("predictors", {}).items():
            found[_title(run)][name].setdefault(run.seed, fmean(accuracies))
    names = dict.fromkeys(name for tables in found.values() for name in tables)
    rows: dict[str, list[Estimate | None]] = {
        name: [Estimate.of(list(tables[name].values())) if name in tables else None for tables in found.values()]
        for name in names
    }
    order = sorted(rows, key=lambda name: fmean(each.mean for each in rows[name] if each is not None), reverse=True)
    return Compared(list(found), {name: rows[name] for name in order})


def lines(table: Compared) -> Iterator[str]:
    """The table as text: mean and standard deviation over seeds, how many; below, which column is which."""
    numbers = [f"({number})" for number in range(1, len(table.cells) + 1)]
    texts: list[Sequence[str]] = [("weights", "statistics", "scores", *numbers)]
    texts += [(*name.split("/", 2), *map(_told, estimates)) for name, estimates in table.rows.items()]
    yield from align(texts, frozenset({0, 1, 2}))
    for number, cell in zip(numbers, table.cells, strict=True):
        yield f"{number} {cell}"


def _title(run: StoredRun) -> str:
    """The cell, how it departs from its preset, and its precision: what may not be averaged over."""
    return "/".join((run.cell, *run.changes)) + f" {run.precision}"


def _told(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{spread(estimate.mean, estimate.std)} n={estimate.n}"
