"""The paper's tables as lists of cells with the figures it prints; ours are filled in elsewhere.

Its figures are the file ``published.json``: mean and what stands behind its plus-minus sign. Studies that it shows
only as curves have no figures.
"""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

from s6mod.branch.controls import CONTROLS
from s6mod.config import nearest
from s6mod.errors import ConfigError
from s6mod.runs.cells import Cell, parse
from s6mod.runs.completion import complete, setting

Metric = Literal["accuracy", "forgetting", "learning_accuracy"]
SEEDS = tuple(range(10))
FEWER_SEEDS = tuple(range(5))  # of the studies of sensitivity
# The cell that the paper's studies vary: one view for both heads and L_Diff as it prints them, and L_Cont by a beta of
# ours, since OnPro learns far less with its 25, at which it varies alpha.
_STUDIED = "onpro+s6mod/cifar100/2000/view=shared/divergence=pq"
STUDY = f"{_STUDIED}/beta=0.5"
ALPHA_STUDY = f"{_STUDIED}/beta=25.0"
# S6MOD in other ways than our presets have it, by data set, or data set and memory size, and method. "Published
# weights" are those of the paper or of its released code, with one view for both heads. A "fresh view" is near to what
# the released code trains: there the branch sees other augmentations of the samples than the base head, and L_Cont,
# over pairs of one class alone, has nothing left to do once all Delta are alike.
_FRESH = ("view=fresh", "beta=0.0", "divergence=qp")
_SHARED = ("view=shared", "divergence=pq")
_ER: dict[str, tuple[str, ...]] = {
    "published weights": ("view=shared", "beta=5.0"),
    "shared view": ("view=shared", "beta=0.5"),
}
OTHER_SETTINGS: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "cifar10": {
        "er": _ER,
        "ocm": {"published weights": ("beta=5.0",), "fresh view": _FRESH},
        "onpro": {"published weights": ("beta=5.0",), "fresh view": _FRESH},
    },
    "cifar100": {
        "er": _ER,
        "ocm": {"published weights": (*_SHARED, "beta=50.0"), "shared view": (*_SHARED, "beta=0.5")},
        "onpro": {"published weights": (*_SHARED, "beta=25.0"), "shared view": (*_SHARED, "beta=0.5")},
        "ocm-ccldc": {"published weights": ("view=shared", "alpha=5.0", "beta=25.0"), "alpha = 5": ("alpha=5.0",)},
        # As released: all weights at 0, but L_Diff at 1 whatever is configured; there not in the first task.
        "onpro-ccldc": {"L_Diff alone": ("view=shared", "weight_dr=0.0", "alpha=1.0", "weight_z=0.0")},
    },
    "cifar100/5000": {"ocm-ccldc": {"published weights": ("view=shared", "beta=25.0")}},  # whose alpha is the preset's
}
METHODS = ("er", "ocm", "onpro", "er-ccldc", "ocm-ccldc", "onpro-ccldc", "mose")  # that it reports on
PATTERNS = (1, 2, 4, 8, 16)  # ours: the paper's curves have no readable axis


@dataclass(frozen=True)
class Line:
    """One line of a table: a cell and the paper's mean and plus-minus, if it has them."""

    label: str
    cell: Cell
    paper: tuple[float, float] | None = None
    control: bool = False  # beside what was asked for: shown only once it has been run


@dataclass(frozen=True)
class Section:
    """Lines that are compared with one another, by one metric."""

    title: str
    metric: Metric
    lines: tuple[Line, ...]
    scores: str | None = None  # the score table; None: the one that each cell predicts with
    shared: tuple[str, ...] = ()  # changes that all lines have, which the title tells in place of their labels


@dataclass(frozen=True)
class PaperTable:
    """A table or study of the paper."""

    name: str
    title: str
    sections: tuple[Section, ...]
    seeds: tuple[int, ...]

    def cells(self, controls: bool = False) -> Iterator[Cell]:
        """Its cells, each once."""
        lines = (line for section in self.sections for line in section.lines if controls or not line.control)
        yield from dict.fromkeys(line.cell for line in lines)


def table(name: str, *others: str) -> PaperTable:
    """The table of that name; ``others`` could have been meant as well."""
    if name not in _MAKERS:
        raise ConfigError(f"expected a table of the paper, got {name!r}; {nearest(name, (*_MAKERS, *others))}")
    return _MAKERS[name]()


def _main(name: str, title: str, metric: Metric) -> PaperTable:
    """Tables 1 and 2: a section for each data set and memory size."""
    figures = _figures()[metric]
    settings = [(data, int(memory)) for data, memories in figures["er"]["base"].items() for memory in memories]
    sections = []
    for data, memory in settings:
        lines: list[Line] = []
        for method, kinds in figures.items():
            for kind, branch in (("base", "none"), ("s6mod", "s6mod")):
                cell = Cell(method, branch, data, memory)
                lines.append(Line(cell.learner, cell, _pair(kinds[kind][data][str(memory)])))
            lines += _beside(lines[-1])
        sections.append(Section(f"{data}, M = {memory}", metric, tuple(lines)))
    return PaperTable(name, title, tuple(sections), SEEDS)


def _ncm() -> PaperTable:
    sections = []
    for place, rows in _figures()["ncm"].items():
        if place == "columns":
            continue
        data, _, memory = place.rpartition("-")
        lines: list[Line] = []
        for learner, (figure, _) in rows.items():
            cell = parse(learner, data, int(memory))
            lines.append(Line(learner, cell, _pair(figure)))
            if cell.branch == "s6mod":
                lines += _beside(lines[-1])
        sections.append(Section(f"{data}, M = {memory}", "accuracy", tuple(lines), scores="ncm"))
    return PaperTable("ncm", "Nearest class mean: average accuracy (%)", tuple(sections), SEEDS)


def ablation_cells(whole: Cell) -> dict[str, Cell]:
    """Parts of the branch, from the method alone to ``whole``, by the paper's labels.

    Our reading of its rows: "branch" is one discretization pattern (plain SS2D: with one, the gate and its L_z have
    nothing to choose) and no L_Cont; "routing" brings the mixture with its gate, its L_z and its class-conditional
    routing; "L_Cont" brings the loss alone. Where ``whole`` has no L_Cont (beta = 0), it is what routing brings.
    """
    plain = ("num_patterns=1", "weight_z=0.0")
    cells = {whole.method: whole.base, f"{whole.method} + branch (with L_Diff)": whole.but(*plain, "beta=0.0")}
    if complete(whole.values())["branch"]["beta"]:
        cells[f"{whole.method} + branch + routing"] = whole.but("beta=0.0")
        cells[f"{whole.method} + branch + L_Cont"] = whole.but(*plain)
    return cells | {f"{whole.method} + s6mod": whole}


def paper_figures(name: Literal["ablation", "alpha", "beta"], whole: Cell) -> dict[str, Any]:
    """What the paper prints in a study of ``whole``, by its labels; nothing if it studied another setting."""
    studied = parse(ALPHA_STUDY if name == "alpha" else STUDY)
    varied = () if name == "ablation" else (f"{name}=0.0",)
    mine, its = (setting(complete(cell.but(*varied).values())) for cell in (whole, studied))
    if mine != its:
        return {}
    return dict(_figures()["ablation"] if name == "ablation" else _figures()["sensitivity"][name])


def _ablation() -> PaperTable:
    title = "Ablation on CIFAR-100, M = 2000"
    return _study("ablation", title, ablation_cells(parse(STUDY)), _figures()["ablation"], SEEDS)


def _sensitivity() -> PaperTable:
    cells = {"alpha": parse(ALPHA_STUDY), "beta": parse(STUDY)}
    figures = _figures()["sensitivity"]
    tables = [
        _study(
            "sensitivity",
            "Sensitivity of OnPro + S6MOD to alpha and beta on CIFAR-100, M = 2000",
            {f"{weight} = {value}": whole.but(f"{weight}={float(value)}") for value in figures[weight]},
            {f"{weight} = {value}": pair for value, pair in figures[weight].items()},
            FEWER_SEEDS,
            f"{weight}: ",
        )
        for weight, whole in cells.items()
    ]
    return replace(tables[0], sections=tuple(section for each in tables for section in each.sections))


def _patterns() -> PaperTable:
    """Number of patterns with and without routing, and a fixed number of active ones; the paper has curves only."""
    whole = parse(STUDY)
    size = whole.values()["branch"]["num_patterns"]
    cells = {"routing": whole}
    cells |= {f"N_k = {fixed}": whole.but(f"fixed_patterns={fixed}") for fixed in (1, size)}
    for count in PATTERNS:
        cells[f"N = {count}, routing"] = routed = whole.but(f"num_patterns={count}")
        cells[f"N = {count}, all active"] = routed.but(f"fixed_patterns={count}")
    title = "Number of patterns of OnPro + S6MOD on CIFAR-100, M = 2000"
    return _study("patterns", title, cells, {}, FEWER_SEEDS)


def _study(
    name: str, title: str, cells: dict[str, Cell], figures: dict[str, Any], seeds: tuple[int, ...], what: str = ""
) -> PaperTable:
    """A section for each metric, in the order that the paper has them, with the controls at its end."""
    metrics: tuple[Metric, Metric] = ("accuracy", "forgetting")
    sections = []
    for column, metric in enumerate(metrics):
        lines = [
            Line(label, cell, _pair(figures[label][column]) if label in figures else None)
            for label, cell in cells.items()
        ]
        sections.append(Section(f"{what}{metric}", metric, (*lines, *_controls(lines[0].cell))))
    return PaperTable(name, title, tuple(sections), seeds)


def other_settings(cell: Cell) -> dict[str, Cell]:
    """S6MOD as others have it or as we tried it, on a cell's method and data set, by their labels."""
    places = OTHER_SETTINGS.get(cell.data, {}) | OTHER_SETTINGS.get(f"{cell.data}/{cell.memory}", {})
    settings = places.get(cell.method, {})
    return {label: replace(cell, changes=changes) for label, changes in settings.items()}


def _beside(line: Line) -> list[Line]:
    """What stands below a line of S6MOD once it has been run: its other settings, and the controls."""
    others = [
        replace(line, label=f"{line.label}, {label}", cell=cell, control=True)
        for label, cell in other_settings(line.cell).items()
    ]
    return [*others, *_controls(line.cell)]


def _controls(cell: Cell) -> list[Line]:
    cells = [cell.with_branch(branch) for branch in CONTROLS]
    return [Line(each.learner, each, control=True) for each in cells]


def _pair(figures: list[float]) -> tuple[float, float]:
    return figures[0], figures[1]


@functools.cache
def _figures() -> dict[str, Any]:
    return dict(json.loads((resources.files(__package__) / "published.json").read_text(encoding="utf-8")))


_MAKERS = {
    "1": lambda: _main("1", "Table 1: average accuracy (%)", "accuracy"),
    "2": lambda: _main("2", "Table 2: average forgetting (%), lower is better", "forgetting"),
    "ablation": _ablation,
    "ncm": _ncm,
    "sensitivity": _sensitivity,
    "patterns": _patterns,
}
TABLES = tuple(_MAKERS)
