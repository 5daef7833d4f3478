"""What the paper's Table 1 still lacks here: cells with too few seeds, and what their runs cost."""

from s6mod.experiments.costs import cost
from s6mod.paper.estimate import ENOUGH
from s6mod.paper.published import table
from s6mod.paper.tables import Results
from s6mod.runs.cells import Cell
from s6mod.runs.completion import complete, setting


def missing(results: Results) -> str:
    """A section in Markdown: how many cells have enough seeds, and the runs that the others lack with their cost.

    Seeds count in whichever precision has the most. Two cells of one training need its runs once.
    """
    lines = [line for section in table("1").sections for line in section.lines]
    seeds = {line.cell: _seeds(results, line.cell) for line in lines if line.paper and not line.cell.changes}
    lacking = {cell.training: ENOUGH - n for cell, n in seeds.items() if n < ENOUGH}
    minutes = {cell: _minutes(cell) for cell in lacking}
    hours = sum(lacking[cell] * minutes[cell] for cell in lacking) / 60
    places = list(dict.fromkeys((cell.data, cell.memory) for cell in lacking))
    rows = []
    for learner in dict.fromkeys(cell.learner for cell in lacking):
        mine = {(cell.data, cell.memory): cell for cell in lacking if cell.learner == learner}
        texts = [f"{lacking[mine[place]]} x {minutes[mine[place]]:.1f}" if place in mine else "" for place in places]
        rows.append(f"| {learner} | {' | '.join(texts)} |")
    return "\n".join(
        [
            "## What is missing",
            "",
            f"{sum(n >= ENOUGH for n in seeds.values())} of the {len(seeds)} accuracy cells of the paper have {ENOUGH} "
            f"seeds or more. The others lack {sum(lacking.values())} runs, about {hours:.0f} hours of an H200, one run "
            "after another, evaluation not counted. An entry has the runs that a cell lacks and the minutes of one. "
            "MOE-MOSE comes with MOSE. `s6mod sweep CELL --seeds 0-2` runs what a cell lacks.",
            "",
            f"| runs x minutes | {' | '.join(f'{data}, {memory}' for data, memory in places)} |",
            "|---" * (1 + len(places)) + "|",
            *rows,
            "",
        ]
    )


def _seeds(results: Results, cell: Cell) -> int:
    found = results.runs[setting(complete(cell.values()))]
    return max((len(seeds) for seeds in found.values()), default=0)


def _minutes(cell: Cell) -> float:
    known = cost(complete(cell.values()))
    assert known is not None, f"nothing is known of the cost of {cell.name}"
    return 60 * known.hours
