"""How S6MOD answers to its knobs: the weights alpha and beta, the number of patterns, and how many of them are active.

Lines in the figures are means over seeds, bands one standard deviation; intervals stand in the tables.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from s6mod.analysis.draw import DASHES, GREY, Canvas, band, canvas, legend_below, level
from s6mod.analysis.question import FoundRuns, Question, branch_option, expect, slug
from s6mod.analysis.study import Drawing, Study, csv_text
from s6mod.config import nearest
from s6mod.decimals import decimal
from s6mod.errors import ConfigError
from s6mod.metrics import AccuracyMatrix, Metrics
from s6mod.paper.published import PATTERNS, Metric, paper_figures
from s6mod.paper.tables import as_published
from s6mod.runs.cells import Cell

WEIGHTS = {"alpha": (0.01, 0.1, 0.5, 1.0, 5.0), "beta": (0.1, 1.0, 5.0, 10.0, 25.0)}  # the paper's values
METRICS: tuple[Metric, Metric] = ("accuracy", "forgetting")
LABELS: dict[Metric, str] = {"accuracy": "Acc (%)", "forgetting": "AF (%)", "learning_accuracy": "N-Acc (%)"}


def study(name: str, whole: Cell, values: Sequence[float] | None = None) -> Question:
    """The study of that name; ``values``: what to vary over, where it varies a number."""
    if name not in STUDIES:
        raise ConfigError(f"expected a study, got {name!r}; {nearest(name, STUDIES)}")
    return STUDIES[name](whole, values)


def _place(whole: Cell) -> str:
    return f"{whole.method} + S6MOD, {whole.data}, M = {whole.memory}"


# --- weights --------------------------------------------------------------------------------------------------


def _weight(name: Literal["alpha", "beta"], whole: Cell, values: Sequence[float] | None) -> Question:
    if name == "beta":
        expect(whole, "variant", "paper", "as plus has no L_Cont")
    chosen = sorted({*map(float, values or WEIGHTS[name]), branch_option(whole, name)})
    cells = {whole.method: whole.base}
    for value in chosen:
        cells[f"{name} = {value:g}"] = whole.but(f"{name}={value}")
    if name == "alpha":  # the weight of L_Diff, which the control has too
        for value in chosen:
            cells[f"confidence, alpha = {value:g}"] = whole.with_branch("confidence").but(f"alpha={value}")
    figures = {f"{name} = {value}": pair for value, pair in paper_figures(name, whole).items()}
    title, answer = f"Sensitivity to {name}: {_place(whole)}", partial(_sensitivity, name, chosen)
    return Question(slug(name, whole.name), title, whole, cells, answer, figures)


def _sensitivity(name: str, chosen: list[float], found: FoundRuns) -> Study:
    method = found.question.whole.method
    loss, other = ("L_Diff", "beta") if name == "alpha" else ("L_Cont", "alpha")
    series = {f"{method} + S6MOD": [f"{name} = {value:g}" for value in chosen]}
    text = f"{name} weighs {loss}; {other} = {branch_option(found.question.whole, other):g}. "
    text += "Lines are means over seeds, bands one standard deviation. "
    if name == "alpha":
        series[f"{method} + confidence"] = [f"confidence, alpha = {value:g}" for value in chosen]
        text += "The control puts a confidence penalty of the same weight on the base head and has no branch. "
    with canvas(1, 2, 2.5) as panel:
        for axis, metric in zip(panel.axes[0], METRICS, strict=True):
            if alone := found.values(method, metric):
                level(axis, [*alone.values()], f"{method} alone")
            for place, (label, labels) in enumerate(series.items()):
                _line(axis, found, labels, metric, label, place)
            axis.set_xticks(range(len(chosen)), [f"{value:g}" for value in chosen])
            axis.set(xlabel=f"{name} (weight of {loss})", ylabel=LABELS[metric])
        legend_below(panel)
        drawing = _done(
            panel,
            found,
            name,
            f"Acc and AF against {name}",
            [method, *(label for each in series.values() for label in each)],
        )
    return Study(found.question.name, found.question.title, text + found.note, [drawing], filled=found.table())


# --- number of patterns ---------------------------------------------------------------------------------------


def _patterns(whole: Cell, values: Sequence[float] | None) -> Question:
    expect(whole, "fixed_patterns", None, "which varies N_k itself")
    counts = sorted({int(value) for value in values or PATTERNS})
    cells = {whole.method: whole.base}
    for count in counts:
        cells[f"N = {count}, routing"] = routed = whole.but(f"num_patterns={count}")
        cells[f"N = {count}, all active"] = routed.but(f"fixed_patterns={count}")

    title = f"Number of patterns: {_place(whole)}"
    return Question(slug("patterns", whole.name), title, whole, cells, partial(_pattern_number, counts), {})


def _pattern_number(counts: list[int], found: FoundRuns) -> Study:
    """The paper's four panels: N-Acc and AF against N, without and with routing; the other row in grey."""
    kinds = {"all active": "all N patterns active", "routing": "class-conditional routing"}
    metrics: tuple[Metric, Metric] = ("learning_accuracy", "forgetting")
    series = {kind: [f"N = {count}, {kind}" for count in counts] for kind in kinds}
    with canvas(2, 2, 4.0, sharex=True, sharey="col") as panel:
        for row, kind in enumerate(kinds):
            for axis, metric in zip(panel.axes[row], metrics, strict=True):
                other = series["routing" if kind == "all active" else "all active"]
                means = [(x, found.values(label, metric)) for x, label in enumerate(other)]
                line = [(x, sum(values.values()) / len(values)) for x, values in means if values]
                if line:
                    axis.plot(*zip(*line, strict=True), color=GREY, linewidth=1, linestyle=DASHES[2])
                _line(axis, found, series[kind], metric, kinds[kind], row)
                axis.set(ylabel=LABELS[metric], title=kinds[kind] if metric == metrics[0] else "")
                axis.set_xticks(range(len(counts)), list(map(str, counts)))
        for axis in panel.axes[1]:
            axis.set_xlabel("number N of patterns")
        labels = [label for pair in series.values() for label in pair]
        drawing = _done(panel, found, "patterns", "N-Acc and AF against the number of patterns", labels)
    text = (
        "New-task accuracy and average forgetting against the number N of discretization patterns, with all of them "
        "active and with class-conditional routing. Lines are means over seeds, bands one standard deviation; in each "
        "panel the grey line is the mean of the other row. "
    )
    return Study(found.question.name, found.question.title, text + found.note, [drawing], filled=found.table())


# --- routing --------------------------------------------------------------------------------------------------


def _routing(whole: Cell, values: Sequence[float] | None) -> Question:
    if values:
        raise ConfigError("expected no values for the routing study, which varies none, got some; leave out --values")
    expect(whole, "fixed_patterns", None, "which varies N_k itself")
    size = int(branch_option(whole, "num_patterns"))
    if size == 1:
        raise ConfigError("expected patterns to choose among for the routing study, got num_patterns=1; raise it")
    cells = {whole.method: whole.base, "N_k by class": whole}
    for fixed, label in ((1, "N_k = 1"), (size, f"N_k = N = {size}")):
        cells[label] = whole.but(f"fixed_patterns={fixed}")
    title = f"Routing: {_place(whole)}"
    return Question(slug("routing", whole.name), title, whole, cells, _routing_over_tasks, {})


def _routing_over_tasks(found: FoundRuns) -> Study:
    """New-task accuracy a[t, t] and AF after each task."""
    rows: list[list[object]] = []
    with canvas(1, 2, 2.7) as panel:
        new, lost = panel.axes[0]
        for place, label in enumerate(label for label in found.question.cells if label in found.runs):
            matrices = found.matrices(label)
            accuracy = {seed: matrix.values.diagonal().tolist() for seed, matrix in matrices.items()}
            method = found.question.whole.method
            forgetting = {seed: forgetting_over_tasks(matrix, method) for seed, matrix in matrices.items()}
            for metric, by_seed, first in (("new-task accuracy", accuracy, 1), ("forgetting", forgetting, 2)):
                for seed, series in by_seed.items():
                    rows += [[label, metric, seed, task, value] for task, value in enumerate(series, first)]
            shown = f"{label} alone" if label == method else label
            order = (place - 1) % 4  # the method alone comes last in colours
            for axis, by_seed, first in ((new, accuracy, 1), (lost, forgetting, 2)):
                if over_seeds := _over_seeds([*by_seed.values()]):
                    band(axis, range(first, first + len(over_seeds)), over_seeds, shown, order)
        new.set(xlabel="task just learned", ylabel="new-task accuracy (%)")
        lost.set(xlabel="after task", ylabel="AF, average forgetting (%)")
        for axis in (new, lost):
            axis.xaxis.get_major_locator().set_params(integer=True)
        legend_below(panel, 4)
        title = "New-task accuracy and forgetting over tasks"
        alt = f"{title}. " + _means(found, list(found.runs), ("learning_accuracy", "forgetting"))
        drawing = panel.done("routing", title, alt, csv_text(("learner", "metric", "seed", "task", "value"), rows))
    text = (
        "Accuracy on the task just learned, and average forgetting of those before it, where each class has one "
        "active pattern, all of them, or as many as class-conditional routing gives it. Lines are means over seeds, "
        "bands one standard deviation. "
    )
    return Study(found.question.name, found.question.title, text + found.note, [drawing], filled=found.table())


def _over_seeds(series: Sequence[Sequence[float]]) -> list[list[float]]:
    """At each task, the values of the seeds that came so far: a stream cut off at a limit may end in any task."""
    tasks = max(map(len, series))
    return [[values[task] for values in series if task < len(values)] for task in range(tasks)]


def forgetting_over_tasks(matrix: AccuracyMatrix, method: str) -> list[float]:
    """AF after task 2, 3, ..., T, from the tasks up to there, as the tables define it for this method."""
    rows, name = matrix.rows(), as_published("forgetting", method)
    return [Metrics.of(AccuracyMatrix.from_rows(rows[:tasks])).plain()[name] for tasks in range(2, len(rows) + 1)]


STUDIES: dict[str, Callable[[Cell, Sequence[float] | None], Question]] = {
    "alpha": partial(_weight, "alpha"),
    "beta": partial(_weight, "beta"),
    "patterns": _patterns,
    "routing": _routing,
}


# --- what they share ------------------------------------------------------------------------------------------


def _line(axis: object, found: FoundRuns, labels: list[str], metric: Metric, name: str, place: int) -> None:
    """One metric over the labels, at 0, 1, 2, ...; labels that have not been run are left out."""
    points = [(x, [*found.values(label, metric).values()]) for x, label in enumerate(labels)]
    known = [(x, values) for x, values in points if values]
    if known:
        band(axis, [x for x, _ in known], [values for _, values in known], name, place)


def _done(panel: Canvas, found: FoundRuns, name: str, title: str, labels: list[str]) -> Drawing:
    rows = [
        [label, metric, seed, value]
        for label in labels
        for metric in LABELS
        for seed, value in found.values(label, metric).items()
    ]
    alt = f"{title}. " + _means(found, labels, tuple(LABELS))
    return panel.done(name, title, alt, csv_text(("learner", "metric", "seed", "value"), rows))


def _means(found: FoundRuns, labels: Sequence[str], metrics: Sequence[Metric]) -> str:
    """The means in words."""
    parts = []
    for label in labels:
        known = [(LABELS[metric].split()[0], [*found.values(label, metric).values()]) for metric in metrics]
        told = ", ".join(f"{short} {decimal(sum(values) / len(values), 1)} %" for short, values in known if values)
        parts += [f"{label}: {told}"] if told else []
    return "; ".join(parts)
