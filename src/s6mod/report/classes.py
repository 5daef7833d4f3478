"""The section on classes: confusion matrices in the order of tasks, and a table by name."""

from collections.abc import Sequence
from statistics import fmean

from s6mod.report.charts import Chart, heat_map
from s6mod.report.groups import Group
from s6mod.report.html import Section, figure, figures, paragraph, table
from s6mod.report.source import RunData


def classes(groups: Sequence[Group]) -> Section:
    """What was taken for what at the end of each run that recorded it."""
    shown = [(group, [run for run in group.runs if run.of_kind("confusion")]) for group in groups]
    shown = [(group, runs) for group, runs in shown if runs]
    if not shown:
        return Section("classes", "Classes", "")
    parts = [figure(_confusion(group, runs[0]), f"seed {runs[0].stored.seed}; lines: tasks") for group, runs in shown]
    by_data: dict[tuple[str, ...], list[tuple[Group, list[RunData]]]] = {}
    for group, runs in shown:
        by_data.setdefault((group.example.config["data"]["name"], *runs[0].class_names), []).append((group, runs))
    text = (
        "By the score table that predicts, at the end. Accuracies are means over seeds; mistakes are counted over all."
    )
    tables = [_by_class(data, part) for (data, *_), part in by_data.items()]
    return Section("classes", "Classes", figures(parts) + "".join(tables) + paragraph(text, "note"))


def _counts(run: RunData) -> list[list[int]]:
    counts: list[list[int]] = run.of_kind("confusion")[-1]["counts"]
    return counts


def _confusion(group: Group, run: RunData) -> Chart:
    tasks = run.of_kind("confusion")[-1]["classes"]
    order = [label for task in tasks for label in task]
    counts = _counts(run)
    unseen = [j for j in range(len(counts)) if j not in order and any(counts[i][j] for i in order)]  # yet guessed
    shares: list[list[float | None]] = [
        [100 * counts[i][j] / sum(counts[i]) if any(counts[i]) else None for j in (*order, *unseen)] for i in order
    ]
    names, others = ([run.class_name(label) for label in labels] for labels in (order, unseen))
    cuts = [sum(map(len, tasks[:k])) for k in range(1, len(tasks))]
    return heat_map(
        f"confusion-{group.colour}", f"Confusion: {group.label}", shares, names, names + others,
        "taken for", "class, in task order", "% of the class", 100, cuts, faint=True,
    )  # fmt: skip


def _by_class(data: str, part: Sequence[tuple[Group, list[RunData]]]) -> str:
    columns = ["class", "test images"]
    for group, _ in part:
        columns += [f"{group.label}: accuracy (%)", "most often taken for"]
    rows = []
    example = part[0][1][0]
    every = [run for _, runs in part for run in runs]
    for label in sorted({label for run in every for task in run.of_kind("confusion")[-1]["classes"] for label in task}):
        row: list[object] = [example.class_name(label), max(sum(_counts(run)[label]) for run in every)]
        for _, runs in part:
            rows_of = [counts[label] for counts in map(_counts, runs) if sum(counts[label])]
            row.append(f"{fmean(100 * counts[label] / sum(counts) for counts in rows_of):.1f}" if rows_of else "")
            row.append(_mistake(runs[0], label, rows_of))
        rows.append(row)
    return table(columns, rows, f"{data}: {len(rows)} classes")


def _mistake(run: RunData, label: int, rows: Sequence[Sequence[int]]) -> str:
    """The class that it was most often taken for, with the share of its images."""
    total = [sum(column) for column in zip(*rows, strict=True)]
    wrong = max((count, -guess) for guess, count in enumerate(total) if guess != label) if total else (0, 0)
    return f"{run.class_name(-wrong[1])} ({100 * wrong[0] / sum(total):.0f} %)" if wrong[0] else ""
