"""Sections drawn from what happened over time: tasks, training, routing."""

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any, TypeVar

from s6mod.report.charts import Chart, Series, heat_map, lines
from s6mod.report.conclusion import lagging
from s6mod.report.groups import Group, panels
from s6mod.report.html import Section, figure, figures, paragraph
from s6mod.report.source import Matrix, RunData

MOST_POINTS = 200  # of a line or a row of tiles: more cannot be seen
MOST_BANDS = 4  # one over the other
BATCHES = "batches learned"
EVALUATED = ("task", "evaluation")  # kinds of records with accuracies
Record = dict[str, Any]
Entry = TypeVar("Entry")

SCALARS = {  # what the branch says about itself, in words
    "mean_patterns": ("N_k, patterns that a sample takes", "patterns, mean over the batch"),
    "prototype_distance": ("Distance between prototypes", "mean over pairs of classes seen"),
}

TERMS = {  # loss terms, in words
    "ce": "cross-entropy of the head",
    "branch/dr": "L_DR, dot regression: draws each feature of the branch to the fixed vector of its class",
    "branch/diff": "L_Diff: how far the predictions of base head and branch are apart (KL divergence)",
    "branch/cont": "L_Cont: makes step sizes alike within a class and unlike between classes; below 0 is better",
    "branch/z": "L_z: keeps the logits of the gate, which chooses patterns, small",
    "branch/confidence": "the control: penalty on confident predictions of the head",
    "branch/smoothing": "the control: label smoothing of the head",
}


def tasks(groups: Sequence[Group]) -> Section:
    """Accuracy and forgetting after each task, and the accuracy matrices."""
    shown = [group for group in groups if any(run.matrix for run in group.runs)]
    parts = []
    for name, title, part in panels(shown):
        drawn = [
            _over_tasks(f"tasks-accuracy{name}", f"Accuracy over the tasks seen{title}", "accuracy (%)", part, _seen),
            _over_tasks(f"tasks-new{name}", f"Accuracy on the task just learned{title}", "accuracy (%)", part, _new),
            _over_tasks(
                f"tasks-forgetting{name}", f"Forgetting of earlier tasks{title}", "forgetting (%)", part, _forgetting
            ),
        ]
        several = any(sum(bool(run.matrix) for run in group.runs) > 1 for group in part)
        caption = "mean over seeds" + "; band: lowest to highest" * (len(part) <= MOST_BANDS) if several else "one seed"
        parts += [figure(chart, caption) for chart in drawn if chart is not None]
    parts += [figure(*_matrix(group)) for group in shown]
    note = lagging(shown)
    return Section("tasks", "Tasks", figures(parts) + (paragraph(note, "note") if note else ""))


def training(groups: Sequence[Group]) -> Section:
    """The anytime curve and the loss terms."""
    parts = []
    for name, title, part in panels(groups):
        anytime = [
            _line(group, run, [(record, fmean(record["accuracy"][run.primary])) for record in run.of_kind(*EVALUATED)])
            for group, run in _logged(part, *EVALUATED)
        ]
        if anytime:
            chart = lines(f"anytime{name}", f"Anytime accuracy{title}", anytime, BATCHES, "accuracy (%)", (0, 100))
            parts.append(figure(chart, "mean over the tasks seen; one line for each seed"))
        steps = list(_logged(part, "step"))
        for term in _names(steps, "terms"):
            series = _over_steps(steps, "terms", term)
            if series:
                chart = lines(f"term-{_slug(term)}{name}", f"Loss term {term}{title}", series, BATCHES, "weighted loss")
                told = TERMS.get(re.sub(r"^net\d+/", "", term))
                parts.append(figure(chart, "; ".join(filter(None, (told, "one line for each seed")))))
    return Section("training", "Training", figures(parts))


def routing(groups: Sequence[Group]) -> Section:
    """What the branch says about itself, as far as the records hold it."""
    steps = [(group, run) for group, run in _logged(groups, "step") if any(r["figures"] for r in run.of_kind("step"))]
    names = _names(steps, "figures")
    parts = []
    for suffix, where, part in panels(groups):
        here = [(group, run) for group, run in steps if group in part]
        for name in names:
            series = _over_steps(here, "figures", name)
            if series:
                title, unit = SCALARS.get(name.rpartition("/")[2], (name, "value"))
                prefix = f"{name.rpartition('/')[0]}: " if "/" in name else ""
                chart = lines(f"branch-{_slug(name)}{suffix}", prefix + title + where, series, BATCHES, unit)
                parts.append(figure(chart, "one line for each seed"))
    first_seeds: dict[str, tuple[Group, RunData]] = {}
    for group, run in steps:
        first_seeds.setdefault(group.label, (group, run))
    for group, run in first_seeds.values():
        parts += [figure(chart, f"seed {run.stored.seed}") for chart in _maps(group, run, names)]
    if not parts:
        return Section("routing", "Routing", "")
    text = (
        "A prototype is the moving average of a class's features. sigma_k, the uncertainty of class k, is near 1 where "
        "its prototype lies close to others. N_k is how many discretization patterns (step sizes of the scan) class k "
        "takes: an uncertain class takes more."
    )
    return Section("routing", "Routing", paragraph(text, "note") + figures(parts))


# --- over tasks -------------------------------------------------------------------------------------------------------


def _seen(matrix: Matrix) -> list[float | None]:
    return [fmean(row) for row in matrix]


def _new(matrix: Matrix) -> list[float | None]:
    return [row[-1] for row in matrix]


def _forgetting(matrix: Matrix) -> list[float | None]:
    """After each task, mean over the earlier ones of the best accuracy so far minus the present; AF at the end."""
    forgotten: list[float | None] = [None]
    for i in range(1, len(matrix)):
        best = [max(matrix[k][j] for k in range(j, i + 1)) for j in range(i)]
        forgotten.append(fmean(best[j] - matrix[i][j] for j in range(i)))
    return forgotten


def _over_tasks(
    name: str, title: str, unit: str, groups: Sequence[Group], curve: Callable[[Matrix], list[float | None]]
) -> Chart | None:
    series = []
    for group in groups:
        curves = [curve(run.matrix) for run in group.runs if run.matrix]
        points = []
        for i in range(max(map(len, curves))):
            values = [value for each in curves for value in each[i : i + 1] if value is not None]
            points += [(i + 1, fmean(values), min(values), max(values))] if values else []
        if points:
            xs, ys, low, high = zip(*points, strict=True)
            band = (low, high) if len(curves) > 1 and len(groups) <= MOST_BANDS else (None, None)
            series.append(Series(group.label, xs, ys, group.colour, *band))
    return lines(name, title, series, "after task", unit, (0, 0)) if series else None


def _matrix(group: Group) -> tuple[Chart, str]:
    """The mean over the seeds that have come furthest."""
    size = max(len(run.matrix) for run in group.runs)
    runs = [run for run in group.runs if len(run.matrix) == size]
    cells = [[fmean(run.matrix[i][j] for run in runs) if j <= i else None for j in range(size)] for i in range(size)]
    numbers = [str(task + 1) for task in range(size)]
    seeds = ", ".join(str(run.stored.seed) for run in runs)
    chart = heat_map(
        f"matrix-{group.colour}", f"Accuracy matrix: {group.label}", cells, numbers, numbers,
        "accuracy on task", "after task", "%", 100,
    )  # fmt: skip
    return chart, f"mean over seeds {seeds}" if len(runs) > 1 else f"seed {seeds}"


# --- over steps -------------------------------------------------------------------------------------------------------


def _logged(groups: Sequence[Group], *kinds: str) -> Iterator[tuple[Group, RunData]]:
    for group in groups:
        yield from ((group, run) for run in group.runs if run.of_kind(*kinds))


def _names(steps: Sequence[tuple[Group, RunData]], part: str) -> list[str]:
    return list(dict.fromkeys(name for _, run in steps for record in run.of_kind("step") for name in record[part]))


def _over_steps(steps: Sequence[tuple[Group, RunData]], part: str, name: str) -> list[Series]:
    """A line for each run that has this number at all."""
    series = []
    for group, run in steps:
        points = [(record, _scalar(record[part].get(name))) for record in run.of_kind("step")]
        if any(value is not None for _, value in points):
            series.append(_line(group, run, points))
    return series


def _line(group: Group, run: RunData, points: Sequence[tuple[Record, float | None]]) -> Series:
    kept = _thin(points)
    xs, ys = [float(record["step"]) for record, _ in kept], [value for _, value in kept]
    return Series(group.label, xs, ys, group.colour, note=f"seed {run.stored.seed}")


def _maps(group: Group, run: RunData, names: Sequence[str]) -> Iterator[Chart]:
    """Per class and per pattern over time, of one run."""
    records = _thin(run.of_kind("step"))
    across = [str(record["step"]) for record in records]
    for name in names:
        prefix, _, kind = name.rpartition("/")
        rows = [record["figures"].get(name) for record in records]
        if not rows or not all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
            continue
        where = f"{group.label}, {prefix}" if prefix else group.label
        if kind in ("sigma", "patterns"):
            mark = f"{prefix}/seen" if prefix else "seen"
            seen = [record["figures"].get(mark, [True] * len(row)) for record, row in zip(records, rows, strict=True)]
            if not all(isinstance(now, list) and len(now) == len(rows[0]) for now in seen):
                continue
            order = _classes_in_order(seen)
            cells = [[row[c] if now[c] else None for row, now in zip(rows, seen, strict=True)] for c in order]
            title, unit = ("sigma_k", "") if kind == "sigma" else ("N_k", "patterns")
            top = 1.0 if kind == "sigma" else _highest(rows)
            down, y_label = [run.class_name(c) for c in order], "class, in order of arrival"
        elif kind == "pattern_load":
            cells = [[row[k] for row in rows] for k in range(len(rows[0]))]
            title, unit, top = "Load of each pattern", "of the weight", _highest(rows)
            down, y_label = [str(k + 1) for k in range(len(cells))], "pattern"
        else:
            continue
        yield heat_map(
            f"{_slug(name)}-{group.colour}", f"{title}: {where}", cells, down, across, BATCHES, y_label, unit, top,
            square=False,
        )  # fmt: skip


def _highest(rows: Sequence[Sequence[float | None]]) -> float:
    return max((value for row in rows for value in row if value is not None), default=0.0) or 1.0


def _classes_in_order(seen: Sequence[Sequence[bool]]) -> list[int]:
    """Classes by when they were first seen."""
    first = {c: next((k for k, now in enumerate(seen) if now[c]), None) for c in range(len(seen[0]))}
    return [c for c, _ in sorted(((c, k) for c, k in first.items() if k is not None), key=lambda pair: pair[::-1])]


def _scalar(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _thin(entries: Sequence[Entry]) -> list[Entry]:
    """Every k-th entry, and the last."""
    every = -(-len(entries) // MOST_POINTS) or 1
    return [*entries[:-1:every], *entries[-1:]]


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text).strip("-")
