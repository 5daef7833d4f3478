"""What could have predicted, from the same trainings: a table for each cell, scores by weights and statistics.

A run scores all of them at its end (``output.predictors``). Results in different precisions are never averaged.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from s6mod.columns import align
from s6mod.decimals import spread
from s6mod.paper.estimate import Estimate
from s6mod.runs.store import StoredRun

Way = tuple[str, str]  # weights, statistics
Scored = dict[str, dict[Way, Estimate]]  # scores -> way -> final accuracy
WAYS = [(weights, statistics) for weights in ("latest", "mean", "averaged") for statistics in ("running", "memory")]


def compared(runs: Iterable[StoredRun]) -> dict[str, Scored]:
    """The combinations of these runs by cell; those without (older ones, unfinished ones) take no part.

    A cell is told with how it departs from its preset and its precision: what may not be averaged over.
    """
    found: dict[str, dict[str, dict[Way, dict[int, float]]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        cell = "/".join((run.cell, *run.changes)) + f" {run.precision}"
        for name, accuracies in (run.result or {}).get("predictors", {}).items():
            weights, statistics, scores = name.split("/", 2)
            found[cell][scores].setdefault((weights, statistics), {}).setdefault(run.seed, fmean(accuracies))
    return {
        cell: {
            scores: {way: Estimate.of(list(values.values())) for way, values in by_way.items()}
            for scores, by_way in tables.items()
        }
        for cell, tables in found.items()
    }


def as_rows(cells: dict[str, Scored]) -> list[dict[str, Any]]:
    """Every combination of every cell, numbers at full length."""
    return [
        {"cell": cell, "precision": precision, "scores": scores, "weights": weights, "statistics": statistics}
        | asdict(estimate)
        for told, tables in cells.items()
        for cell, _, precision in [told.rpartition(" ")]
        for scores, by_way in tables.items()
        for (weights, statistics), estimate in by_way.items()
    ]


def lines(cells: dict[str, Scored]) -> Iterator[str]:
    """A table for each cell: mean and standard deviation over seeds, the best with a star."""
    for cell, tables in cells.items():
        ways = _ways(tables)
        best, seeds = _best(tables), max(each.n for by_way in tables.values() for each in by_way.values())
        yield f"{cell}, {seeds} seed{'s' * (seeds != 1)}"
        texts: list[Sequence[str]] = [("", *("/".join(way) for way in ways))]
        for scores, by_way in tables.items():
            texts.append((scores, *(_told(by_way.get(way), seeds, (scores, way) == best) for way in ways)))
        yield from (f"  {line}" for line in align(texts, frozenset({0})))
        yield ""


def _ways(tables: Scored) -> list[Way]:
    """Those that any of the tables has, in the order of ``WAYS``."""
    there = {way for by_way in tables.values() for way in by_way}
    return [way for way in WAYS if way in there]


def _best(tables: Scored) -> tuple[str, Way]:
    pairs = [(scores, way) for scores, by_way in tables.items() for way in by_way]
    return max(pairs, key=lambda pair: tables[pair[0]][pair[1]].mean)


def _told(estimate: Estimate | None, seeds: int, best: bool) -> str:
    if estimate is None:
        return ""
    fewer = f" n={estimate.n}" if estimate.n < seeds else ""
    return f"{spread(estimate.mean, estimate.std)}{fewer}{'*' if best else ' '}"
