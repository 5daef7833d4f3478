"""Does a plug-in help any method? Each method alone, and what it gains by each plug-in, paired by seed.

S6MOD has ER's preset on every method: nothing is tuned for the one it joins. Bounds, and methods that no plug-in can
join, stand there alone.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import cast, get_args

from s6mod.analysis.draw import COLOURS, GREY, MARKS, canvas, legend_below
from s6mod.analysis.question import FoundRuns, Question, slug
from s6mod.analysis.study import Drawing, PlainTable, Study, csv_text
from s6mod.branch.controls import CONTROLS
from s6mod.config import nearest
from s6mod.decimals import spread
from s6mod.errors import ConfigError
from s6mod.experiments.costs import cost
from s6mod.methods import methods
from s6mod.paper.estimate import Estimate, paired
from s6mod.paper.published import Metric
from s6mod.paper.render import gain_text, notes
from s6mod.paper.tables import Sides, sides
from s6mod.runs.cells import Cell, parse
from s6mod.runs.completion import complete

PLUG_INS = (*CONTROLS, "s6mod", "mkd")
ALONE = ("finetune", "gdumb")  # a bound, and one that trains when it is asked: there is no step to join
IID = "iid"  # ER on an iid stream, the upper bound
LATEST = "mkd, latest"  # the training of MKD, by the network's latest weights
STEADY = "averaged/memory"  # what predicts best on most methods, from the same trainings (output.average)
TITLE = "Plug-ins on every method: {data}, M = {memory}"
TEXT = (
    "Average accuracy (Acc) and forgetting (AF) of each method alone, and how they change with a plug-in: mean over "
    "the seeds that both have, ± half of the 95 % interval (Student's t). Nothing is tuned: S6MOD has ER's preset on "
    "every method, the controls confidence and smoothing have weight 1, MKD has its published weights. MKD predicts by "
    f"the mean of two networks' weights, which helps by itself; the column '{LATEST}' is the same training by the "
    "latest weights, as the method alone predicts. A plug-in helps or hurts where the interval leaves out 0; else it "
    "is open. Of so many intervals some leave out 0 by chance. A method without logits refuses plug-ins. GDumb, which "
    "trains when it is asked, and the bounds stand alone: finetune, and iid, which is ER on an iid stream. Older "
    "runs kept no averaged weights: they are missing in the second table. Methods that have not been run are left out."
)


def plug_in(names: Sequence[str] | None, data: str, memory: int | None, folder: str | None = None) -> Question:
    """The study on these methods; None: on all of the package. ``folder``: where prepared data sets lie."""
    known = sorted(methods.registered(outside=False))
    chosen = list(dict.fromkeys(names)) if names else [*known, IID]
    er = parse("er", data, memory, folder)
    cells: dict[str, Cell] = {}
    for name in chosen:
        if name == IID:
            cells[IID] = er.but("stream.kind=iid")
            continue
        if name not in methods:
            raise ConfigError(f"expected methods for the study, got {name!r}; {nearest(name, (*known, IID))}")
        cells[name] = base = replace(er, method=name)
        joined = () if name in ALONE or not methods[name].has_logits else PLUG_INS
        cells |= {f"{name} + {each}": _with(base, each) for each in joined}
    title = TITLE.format(data=er.data, memory=er.memory)
    name = slug("plug-in", er.data, str(er.memory), *(names or ()))
    pieces = {
        f"s6mod study plug-in {method} --data {er.data} --memory {er.memory}": tuple(
            label for label in cells if label.partition(" + ")[0] == method
        )
        for method in chosen
    }
    return Question(name, title, er, cells, _answer, {}, pieces, {"average": 0.99})


def _with(base: Cell, name: str) -> Cell:
    """The method with a plug-in; S6MOD with ER's options."""
    if name == "mkd":
        return replace(base, teacher=name)
    cell = base.with_branch(name)
    own, its = (complete(each.values())["branch"] for each in (cell, replace(cell, method="er")))
    return cell.but(*(f"{key}={json.dumps(its[key]).strip(chr(34))}" for key in its if own[key] != its[key]))


def _answer(found: FoundRuns) -> Study:
    question = found.question
    tables = [
        _table(found, "accuracy", "Average accuracy, Acc (%), and its change (points)"),
        _table(
            found, STEADY, "The same trainings by averaged weights with statistics of the memory: Acc, and its change"
        ),
        _table(found, "forgetting", "Average forgetting, AF (%), and its change (points); lower is better"),
        _costs(found),
    ]
    text = f"{TEXT} {found.note}"
    text += "".join(f" {note}." for note in notes(cell for table in tables for row in table.rows for cell in row))
    return Study(question.name, question.title, text, [_picture(found)], tables, findings=_words(found))


def _methods(found: FoundRuns) -> list[str]:
    """The labels of methods alone."""
    return [label for label in found.question.cells if " + " not in label]


def _joined(found: FoundRuns) -> list[str]:
    """Those that plug-ins can join."""
    return [name for name in _methods(found) if f"{name} + {PLUG_INS[0]}" in found.question.cells]


def _shown(found: FoundRuns, names: Sequence[str], what: str = "accuracy") -> list[str]:
    """Of these methods, those of which there is a figure; all if there is none."""
    figures = {label.partition(" + ")[0] for label in found.question.cells if _values(found, label, what)}
    return [name for name in names if name in figures] or list(names)


def _gain(found: FoundRuns, method: str, name: str, what: str = "accuracy") -> Estimate | None:
    return paired(_joined_values(found, method, name, what), _values(found, method, what))


def _joined_values(found: FoundRuns, method: str, name: str, what: str) -> dict[int, float]:
    if name != LATEST:
        return _values(found, f"{method} + {name}", what)
    return _values(found, f"{method} + mkd", "latest/running") if what == "accuracy" else {}


def _values(found: FoundRuns, label: str, what: str) -> dict[int, float]:
    """By seed: ``what`` is a metric of what predicts, or weights/statistics, whose accuracy at the end counts."""
    if what in get_args(Metric):
        return found.values(label, cast(Metric, what))
    scored: dict[int, float] = {}
    for seed, run in found.runs.get(label, {}).items():
        result = run.result or {}
        rows = result.get("predictors", {}).get(f"{what}/{result.get('primary')}")
        scored |= {} if rows is None else {seed: fmean(rows)}
    return scored


def _sides(found: FoundRuns, method: str, name: str) -> Sides:
    """Whether the two sides of a gain come from one version of the code."""
    joined = "mkd" if name == LATEST else name
    return sides(found.runs.get(f"{method} + {joined}", {}), found.runs.get(method, {}))


# --- tables ---------------------------------------------------------------------------------------------------


def _table(found: FoundRuns, what: str, title: str) -> PlainTable:
    columns = (*PLUG_INS, LATEST) if what == "accuracy" else PLUG_INS
    rows = []
    for method in _shown(found, _methods(found), what):
        base = list(_values(found, method, what).values())
        estimate = Estimate.of(base) if base else None
        alone = spread(estimate.mean, estimate.std, gap=" ") if estimate else "not run"
        if method in _joined(found):
            gains = [_say(_gain(found, method, name, what), _sides(found, method, name)) for name in columns]
        else:
            gains = ["" if method in (*ALONE, IID) else "refused"] * len(columns)
        rows.append([method, str(len(base)), alone, *gains])
    return PlainTable(title, ("method", "n", "alone", *(f"+ {name}" for name in columns)), rows)


def _costs(found: FoundRuns) -> PlainTable:
    """Of each cell, run or not: seconds of training on an H200, alone, measured or estimated."""

    def seconds(label: str) -> str:
        if label not in found.question.cells:
            return ""
        known = cost(complete(found.question.cells[label].values()))
        return "unknown" if known is None else f"{known.steps * known.ms / 1000:.0f}"

    rows = [[name, seconds(name), *(seconds(f"{name} + {each}") for each in PLUG_INS)] for name in _methods(found)]
    columns = ("method", "alone", *(f"+ {name}" for name in PLUG_INS))
    return PlainTable("What a run takes: seconds of training on an H200, one run at a time, estimated", columns, rows)


# --- words ----------------------------------------------------------------------------------------------------


def _words(found: FoundRuns) -> list[str]:
    """Where S6MOD helps, hurts, or does no better than a control; then the same of MKD."""
    joined = _joined(found)
    beyond = {method: _beyond_controls(found, method) for method in joined}
    sentences = _sorted_by("S6MOD", {method: _gain(found, method, "s6mod") for method in joined})
    more = [name for name, gain in beyond.items() if _verdict(gain) == "helps"]
    enough = [name for name, gain in beyond.items() if gain is not None and name not in more]
    if more:
        sentences.append(f"S6MOD gains more than the better control on {_listed(more, beyond)}.")
    if enough:
        sentences.append(
            f"S6MOD does no better than the better control, as far as can be told, on {_listed(enough, beyond)}."
        )
    sentences += _sorted_by("MKD", {method: _gain(found, method, "mkd") for method in joined})
    steady: dict[str, Estimate | None] = {
        method: gain for method in joined if (gain := _gain(found, method, "s6mod", STEADY)) is not None
    }
    return sentences + _sorted_by("By averaged weights S6MOD", steady)


def _beyond_controls(found: FoundRuns, method: str) -> Estimate | None:
    """S6MOD minus the control that has the higher mean; None unless S6MOD and both controls have been run."""
    ours = found.values(f"{method} + s6mod", "accuracy")
    controls = [found.values(f"{method} + {each}", "accuracy") for each in CONTROLS]
    return paired(ours, max(controls, key=lambda each: fmean(each.values()))) if all(controls) else None


def _verdict(gain: Estimate | None) -> str:
    if gain is None:
        return "not run"
    if gain.half is None or abs(gain.mean) <= gain.half:
        return "open"
    return "helps" if gain.mean > 0 else "hurts"


def _sorted_by(name: str, gains: dict[str, Estimate | None]) -> list[str]:
    verbs = {"helps": "helps", "hurts": "hurts", "open": "is open", "not run": "has not been run"}
    by_word = {word: [method for method, gain in gains.items() if _verdict(gain) == word] for word in verbs}
    return [f"{name} {verbs[word]} on {_listed(those, gains)}." for word, those in by_word.items() if those]


def _listed(names: Sequence[str], gains: dict[str, Estimate | None]) -> str:
    return ", ".join(name if gains[name] is None else f"{name} ({_say(gains[name])})" for name in names)


def _say(gain: Estimate | None, of: Sides | None = None) -> str:
    return gain_text(gain, of, " ") or "not run"


# --- picture --------------------------------------------------------------------------------------------------


def _picture(found: FoundRuns) -> Drawing:
    """The change of Acc by method, one colour a plug-in: mean and interval."""
    names = _shown(found, _joined(found))
    rows: list[list[object]] = []
    with canvas(1, 1, 1.0 + 0.36 * max(len(names), 2)) as panel:
        axis = panel.axes[0, 0]
        axis.axvline(0, color=GREY, linewidth=1)
        for number, name in enumerate(PLUG_INS):
            gains = {place: _gain(found, method, name) for place, method in enumerate(names)}
            known = {place + 0.19 * (number - 1.5): gain for place, gain in gains.items() if gain is not None}
            half = [gain.half or 0.0 for gain in known.values()]
            style = {"color": COLOURS[number], "marker": MARKS[number], "markersize": 4, "linewidth": 1.3, "capsize": 2}
            means = [gain.mean for gain in known.values()]
            axis.errorbar(means, list(known), xerr=half, linestyle="none", label=name, **style)
            for method in names:
                alone = found.values(method, "accuracy")
                values = found.values(f"{method} + {name}", "accuracy")
                rows += [[method, name, seed, value, alone.get(seed)] for seed, value in values.items()]
        for place, method in enumerate(names):
            if not any(_gain(found, method, name) for name in PLUG_INS):
                axis.annotate("not run", (0, place), (4, -3), textcoords="offset points", color=GREY, fontsize=7)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlabel("change of Acc (points): mean, 95 % interval")
        legend_below(panel, 4)
        title = "What plug-ins bring to each method"
        told = {
            method: [f"{name} {_say(gain)}" for name in PLUG_INS if (gain := _gain(found, method, name))]
            for method in names
        }
        alt = f"{title}, change of average accuracy in points: "
        alt += "; ".join(f"{method}: {', '.join(gains) or 'not run'}" for method, gains in told.items())
        return panel.done("plug-in", title, alt, csv_text(("method", "plug-in", "seed", "value", "base"), rows))
