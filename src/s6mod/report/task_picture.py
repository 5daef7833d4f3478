"""The picture of accuracy over the tasks seen, drawn with matplotlib (extra ``plots``)."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from s6mod.report.picture import new_picture
from s6mod.report.svg import COLOURS

if TYPE_CHECKING:
    from s6mod.report.picture import Picture

MARKS = "os^Dvp"


def plot_tasks(matrices: Mapping[str, Sequence[list[list[float]]]], title: str) -> "Picture":
    """After each task, the mean accuracy over those seen: a line through the mean over seeds, lowest to highest shaded.

    ``matrices``: by learner, one for each seed, as ``plot_matrices`` has them.
    """
    figure = new_picture(6.4, 4.0)
    from matplotlib.ticker import MaxNLocator

    axis = figure.subplots()
    for place, (name, seeds) in enumerate(matrices.items()):
        colour = COLOURS[place % len(COLOURS)]
        tasks = range(1, min(map(len, seeds)) + 1)
        curves = [[fmean(matrix[task - 1]) for task in tasks] for matrix in seeds]
        columns = list(zip(*curves, strict=True))  # for each task, its seeds
        axis.plot(tasks, [fmean(each) for each in columns], color=colour, marker=MARKS[place % len(MARKS)], label=name)
        if len(seeds) > 1:
            axis.fill_between(tasks, [*map(min, columns)], [*map(max, columns)], color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel="after task", ylabel="accuracy over the tasks seen (%)", ylim=(0, 100), title=title)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)
    return figure
