"""What each part of the branch brings, and how much of it a penalty on the base head brings as well.

The rows are the paper's, and two controls at the same alpha: confidence penalty and label smoothing, without a branch.
"""

from dataclasses import replace

from s6mod.analysis.draw import COLOURS, GREY, canvas
from s6mod.analysis.question import FoundRuns, Question, branch_option, expect, slug
from s6mod.analysis.study import Drawing, PlainTable, Study, csv_text
from s6mod.branch.controls import CONTROLS
from s6mod.decimals import difference
from s6mod.paper.estimate import Estimate, paired
from s6mod.paper.published import Metric, ablation_cells, paper_figures
from s6mod.runs.cells import Cell

METRICS: tuple[Metric, ...] = ("accuracy", "forgetting", "learning_accuracy")
TEXT = (
    "What each part of the branch brings to {method}. Branch: plain selective scan with one discretization and L_Diff. "
    "Routing adds the mixture of patterns with its gate, L_z and class-conditional N_k; L_Cont adds that loss alone, "
    "unless its weight is 0. The controls put a penalty on the base head at the same weight, alpha = {alpha:g}, and "
    "have no branch: what S6MOD gains beyond them, its branch has earned. Gains are paired by seed; intervals are at "
    "95 % (Student's t). {note}"
)


def ablation(whole: Cell) -> Question:
    """The ablation of a method with S6MOD."""
    expect(whole, "variant", "paper", "as plus has no L_Cont to take away")
    expect(whole, "fixed_patterns", None, "one part of which is N_k by class")
    alpha = branch_option(whole, "alpha")
    cells = ablation_cells(whole)
    for control in CONTROLS:
        cells[f"{whole.method} + {control}"] = replace(whole.with_branch(control), changes=(f"alpha={alpha}",))
    title = f"Ablation of S6MOD on {whole.method}, {whole.data}, M = {whole.memory}"
    name = slug("ablation", whole.name)
    return Question(name, title, whole, cells, _answer, paper_figures("ablation", whole))


def _answer(found: FoundRuns) -> Study:
    question = found.question
    base = next(iter(question.cells))
    text = TEXT.format(method=base, alpha=branch_option(question.whole, "alpha"), note=found.note)
    table = found.table()
    return Study(question.name, question.title, text, [_gains(found, base)], [_against_controls(found)], table)


def _gains(found: FoundRuns, base: str) -> Drawing:
    """Change of Acc and AF against the method alone: mean and interval, and each seed as a dot."""
    labels = [label for label in found.question.cells if label != base and label in found.runs]
    rows: list[list[object]] = []
    with canvas(1, 2, 0.9 + 0.3 * max(len(labels), 2), sharey=True) as panel:
        for axis, metric, short in zip(panel.axes[0], METRICS[:2], ("Acc", "AF"), strict=True):
            alone = found.values(base, metric)
            axis.axvline(0, color=GREY, linewidth=1)
            for place, label in enumerate(labels):
                values = found.values(label, metric)
                rows += [[label, metric, seed, value, alone.get(seed)] for seed, value in values.items()]
                gain = paired(values, alone)
                if gain is None:
                    continue
                control = found.question.cells[label].branch in CONTROLS
                dots = [values[seed] - alone[seed] for seed in values.keys() & alone.keys()]
                axis.plot(dots, [place + 0.22] * len(dots), ".", color=GREY, markersize=3)
                style = {"color": COLOURS[1 if control else 0], "marker": "s" if control else "o"}
                axis.errorbar(gain.mean, place, xerr=gain.half, markersize=5, capsize=2.5, linewidth=1.4, **style)
            axis.set_xlabel(f"change of {short} (points;\n{'higher' if metric == 'accuracy' else 'lower'} is better)")
        names = [label.removeprefix(f"{base} ").replace(" (with L_Diff)", "") for label in labels]
        panel.axes[0, 0].set_yticks(range(len(labels)), names)
        panel.axes[0, 0].set_ylim(len(labels) - 0.4, -0.6)
        title = f"Change against {base} alone"
        panel.figure.suptitle(f"{title}: mean, 95 % interval, seeds", fontsize=9)
        alt = f"{title}, average accuracy and average forgetting: " + "; ".join(
            f"{name} {_say(paired(found.values(label, 'accuracy'), found.values(base, 'accuracy')))} and "
            f"{_say(paired(found.values(label, 'forgetting'), found.values(base, 'forgetting')))} points"
            for name, label in zip(names, labels, strict=True)
        )
        columns = ("learner", "metric", "seed", "value", "base")
        return panel.done("gains", title, alt, csv_text(columns, rows))


def _against_controls(found: FoundRuns) -> PlainTable:
    """S6MOD minus each control, paired by seed: what the branch itself has earned."""
    cells = found.question.cells
    [whole] = [label for label, cell in cells.items() if cell == found.question.whole]
    controls = [label for label, cell in cells.items() if cell.branch in CONTROLS]
    rows = [
        [f"{whole} minus {control}", *(_say(paired(found.values(whole, m), found.values(control, m))) for m in METRICS)]
        for control in controls
    ]
    return PlainTable("S6MOD against its controls, paired by seed", ("difference", "Acc", "AF", "N-Acc"), rows)


def _say(estimate: Estimate | None) -> str:
    return difference(estimate.mean, estimate.half, " ") if estimate else "not run"
