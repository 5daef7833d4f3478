"""The first section: headline figures of each setting against its base, its controls and the paper."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from s6mod.decimals import ranges
from s6mod.paper.estimate import Estimate
from s6mod.paper.published import table as paper_table
from s6mod.paper.render import COLUMNS, LEGEND, cells, gain_text, notes, notes_of
from s6mod.paper.tables import Results, Row, as_published
from s6mod.report.charts import Chart, Dots, dots
from s6mod.report.conclusion import beyond_chance, conclusion, names, nearest_means
from s6mod.report.groups import Group, panels
from s6mod.report.html import Section, figure, figures, paragraph, spread, table
from s6mod.report.source import RunData
from s6mod.runs.completion import complete, setting

MEANINGS = (
    "Acc: accuracy at the end, mean over tasks. AF: how far each task but the last has fallen from its best, mean over "
    "them. N-Acc: accuracy on each task just after it was learned, mean over tasks. Anytime: accuracy over the tasks "
    "seen, mean over task ends. By the score table that predicts, unless a column names another."
)
VERDICTS = (
    "Verdict: by Welch's 95 % interval of our mean minus the paper's, an average of ten runs. It differs if that "
    "excludes 0 with three seeds or more, agrees if it contains 0 and its half is at most 2 points, and is open "
    "otherwise: n is the number of seeds that would decide it."
)
PaperFigures = dict[tuple[str, str], float]  # by setting and metric


def overview(groups: Sequence[Group]) -> Section:
    """Headline figures."""
    under_way = [(group, run) for group in groups for run in group.runs if run.stored.result is None]
    done = [group for group in groups if group.values("accuracy")]
    rows, published = _beside_paper(done)
    parts = [_progress(under_way)] if under_way else []
    marks: list[str] = []
    if done:
        parts += [paragraph(f"{where} {' '.join(conclusion(part))}".strip(), "lead") for where, part in settings(done)]
        parts += [paragraph(note, "note") for note in (names(done), _unlike_presets(done), nearest_means(done)) if note]
        parts.append(f'<div class="cards">{"".join(_card(group, groups) for group in done)}</div>')
        parts.append(figures(figure(*drawn) for panel in panels(done) for drawn in _dots(*panel, published)))
        parts.append(_metrics(done))
        parts.append(_gains(done))
        parts += _pairs(done)
        marks = notes(parts)
        parts.append(paragraph(" ".join([_meanings(done), *(f"{mark}." for mark in marks)]), "note"))
    if rows:
        parts.append(table(("figure", *COLUMNS), [(row.section, *cells(row)) for row in rows], "Beside the paper"))
        legend = "; ".join(
            [f"{LEGEND[0].upper()}{LEGEND[1:]}", *(note for note in notes_of(rows) if note not in marks)]
        )
        parts.append(paragraph(f"{legend}. {VERDICTS}", "note"))
    return Section("overview", "Overview", "".join(parts))


def _progress(runs: Sequence[tuple[Group, RunData]]) -> str:
    rows = []
    for group, run in runs:
        latest = run.matrix[-1] if run.matrix else []
        planned = f" of {run.planned_steps}" if run.planned_steps else ""
        accuracy = f"{sum(latest) / len(latest):.1f}" if latest else ""
        name = f"{group.label}, seed {run.stored.seed}"
        rows.append((name, run.stored.status, f"{run.step}{planned}", len(run.matrix), accuracy))
    columns = ("run", "status", "batches", "tasks learned", "accuracy over them (%)")
    return table(columns, rows, "Not finished: in no figure of this section")


def _card(group: Group, groups: Sequence[Group]) -> str:
    accuracy = group.estimate("accuracy")
    assert accuracy is not None
    spread_of = f"<small> ± {accuracy.std:.2f}</small>" if accuracy.std is not None else ""
    chips = "".join(_chip(group, other) for other in group.opponents(groups))
    seeds = f"{accuracy.n} seed{'s' if accuracy.n > 1 else ''}"
    return (
        f'<div class="card k{group.colour % 6}"><h3>{escape(group.label)}</h3>'
        f'<p class="big">{accuracy.mean:.2f}{spread_of}</p><p class="note">Acc in percent, {seeds}</p>{chips}</div>'
    )


def _chip(group: Group, other: Group) -> str:
    difference = group.gain(other, "accuracy")
    if difference is None:
        return ""
    kind, told = _beyond_chance(difference)
    text = f"{_gain(group, other, 'accuracy')} over {other.label}: {told} ({difference.n} paired)"
    return f'<p class="chip {kind}">{escape(text)}</p>'


def _beyond_chance(difference: Estimate) -> tuple[str, str]:
    beyond = beyond_chance(difference)
    if beyond is None:
        return "unsure", "one seed says nothing" if difference.n == 1 else "two seeds say little"
    if not beyond:
        return "unsure", "not beyond chance"
    return ("up", "a gain") if difference.mean > 0 else ("down", "a loss")


def _dots(suffix: str, where: str, groups: Sequence[Group], published: PaperFigures) -> list[tuple[Chart, str]]:
    drawn = []
    for metric, title in (
        ("accuracy", "Acc, average accuracy at the end (%)"),
        ("forgetting", "AF, average forgetting (%)"),
        ("learning_accuracy", "N-Acc, accuracy on new tasks (%)"),
    ):
        rows = []
        for group in groups:
            values, estimate = group.values(_name(metric, group)), group.estimate(_name(metric, group))
            if estimate is not None:
                paper = published.get((group.example.setting, metric))
                rows.append(Dots(group.label, [*values.values()], estimate.mean, estimate.half, paper, group.colour))
        caption = "lower is better; " * (metric == "forgetting") + "dots: seeds; bar: mean"
        caption += "; shade: its 95 % interval" * any(row.half is not None for row in rows)
        caption += "; cross: the paper" * any(row.published is not None for row in rows)
        if rows:
            name = f"headline-{metric.replace('_', '-')}{suffix}"
            drawn.append((dots(name, f"{title}{where}", rows, "%"), caption))
    return drawn


def _metrics(groups: Sequence[Group]) -> str:
    """Mean and standard deviation of every metric, and the accuracy by every score table."""
    results = [run.result for group in groups for run in group.finished.values() if run.result is not None]
    tables = dict.fromkeys(name for result in results for name in result["metrics"])
    rows = [
        (
            group.label,
            ranges(group.finished),
            *(spread(group.estimate(_name(metric, group))) for metric in
              ("accuracy", "forgetting", "learning_accuracy", "anytime_accuracy")),
            *(spread(group.estimate("accuracy", name)) for name in tables),
        )
        for group in groups
    ]  # fmt: skip
    columns = ("learner", "seeds", "Acc", "AF", "N-Acc", "anytime", *(f"Acc by {name}" for name in tables))
    return table(columns, rows, "All figures in percent, mean ± standard deviation over seeds")


def _gains(groups: Sequence[Group]) -> str:
    metrics = ("accuracy", "forgetting", "learning_accuracy", "anytime_accuracy")
    rows = []
    for group in groups:
        for other in group.opponents(groups):
            shared = group.gain(other, "accuracy")
            if shared is not None:
                gains = [_gain(group, other, _name(metric, group)) for metric in metrics]
                rows.append((f"{group.label} over {other.label}", shared.n, *gains))
    columns = ("gain", "paired seeds", "Acc", "AF (less is better)", "N-Acc", "anytime")
    return table(columns, rows, "Gains paired by seed, ± half of the 95 % interval") if rows else ""


def _gain(group: Group, other: Group, metric: str) -> str:
    return gain_text(group.gain(other, metric), group.sides(other), " ")


def _pairs(groups: Sequence[Group]) -> list[str]:
    """Every learner against every other of its setting, where they are of several methods."""
    worlds: dict[tuple[str, str, str | None], list[Group]] = {}
    for group in groups:
        worlds.setdefault(group.world, []).append(group)
    tables = []
    for part in worlds.values():
        if len({group.family for group in part}) > 1:
            rows = [
                (row.label, *("" if row is column else _gain(row, column, "accuracy") for column in part))
                for row in part
            ]
            title = f"Any two, Acc: row minus column, paired by seed, ± half of the 95 % interval{_where(part, groups)}"
            tables.append(table(("learner", *(column.label for column in part)), rows, title))
    return tables


def _unlike_presets(groups: Sequence[Group]) -> str:
    """What all learners have otherwise than their presets: no label says so, since it tells none of them apart."""
    first, *others = (group.example.changes for group in groups)
    shared = [change for change in first if all(change in each for each in others)]
    return f"Unlike the presets, all have {', '.join(shared)}." if shared else ""


def _where(part: Sequence[Group], groups: Sequence[Group]) -> str:
    data, memory = part[0].setting
    return f": {data}, M = {memory}" if len({group.setting for group in groups}) > 1 else ""


def settings(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """Groups on one stream, in one precision, with the name of the data set and memory size where there are several."""
    settings: dict[tuple[str, str, str, str | None], list[Group]] = {}
    for _, title, part in panels(groups):
        for group in part:
            settings.setdefault((title, repr(group.example.config["stream"]), *group.family[1:]), []).append(group)
    return [(f"{title.removeprefix(': ')}:" if title else "", part) for (title, *_), part in settings.items()]


def _meanings(groups: Sequence[Group]) -> str:
    """What the figures are, in words; methods whose authors have another AF are named."""
    names = dict.fromkeys(group.example.config["method"]["name"] for group in groups)
    others = [name for name in names if as_published("forgetting", name) != "forgetting"]
    told = f" AF of {', '.join(others)}: over all tasks, the last being 0, as its authors have it." if others else ""
    return MEANINGS + told


def _beside_paper(groups: Sequence[Group]) -> tuple[list[Row], PaperFigures]:
    """Rows of the paper's tables that these runs fill, and the paper's figures for their settings."""
    runs = [run for group in groups for run in group.finished.values()]
    wanted = {(run.config["method"]["name"], run.config["data"]["name"], run.config["memory_size"]) for run in runs}
    results, rows, published = Results(runs), [], PaperFigures()
    for name in ("1", "2", "ncm"):
        for section in paper_table(name).sections:
            lines = [
                line for line in section.lines
                if (line.cell.training.method, line.cell.data, line.cell.memory) in wanted and line.paper is not None
            ]  # fmt: skip
            for line in lines:
                if section.scores is None and line.cell.scores is None and line.paper is not None:
                    published[setting(complete(line.cell.values())), section.metric] = line.paper[0]
            title = "NCM accuracy" if section.scores else section.metric
            part = replace(section, title=f"{section.title}: {title}", lines=tuple(lines))
            rows += [row for row in results.fill(part) if row.ours is not None]
    return rows, published


def _name(metric: str, group: Group) -> str:
    return as_published(metric, group.example.config["method"]["name"])
