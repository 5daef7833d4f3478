"""How the figures of the analysis look, drawn with matplotlib (extra ``plots``): made for the width of a column.

Colours are those of the report, which people with any colour vision tell apart, and four more; lines differ in mark and
dash too.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from s6mod.analysis.study import Drawing
from s6mod.decimals import round_number
from s6mod.report.picture import new_picture, require_matplotlib
from s6mod.report.svg import COLOURS as PALETTE
from s6mod.report.svg import short

GREY = "#767676"
COLOURS = (*PALETTE, "#000000", "#882255", "#999933", GREY)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)), (0, (1, 1)))
MOST_TICKS = 5  # along one of two panels side by side
MOST_MARKS = 25  # of a line: more cover it
MOST_NAMES = 20  # of classes that fit beside a matrix
MOST_LETTERS = 14  # of a name there
WIDTH = 4.8  # inches; a column of 3.3 inches still shows its text at 6 points
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "s6mod",  # the same figure gives the same file
    "svg.fonttype": "path",
    "text.parse_math": False,  # names of classes are not formulas
}


@dataclass
class Canvas:
    """A figure under way."""

    figure: Any
    axes: Any  # (rows, columns) array of axes

    def done(self, name: str, title: str, alt: str, csv: str) -> Drawing:
        """The figure as it is now."""
        self.figure.draw_without_rendering()  # else an SVG has the layout that was before ticks and colour bars
        svg, png = io.StringIO(), io.BytesIO()
        self.figure.savefig(svg, format="svg", metadata={"Date": None})
        self.figure.savefig(png, format="png", dpi=200)
        return Drawing(name, title, alt, csv, svg.getvalue(), png.getvalue())


@contextmanager
def canvas(rows: int, columns: int, height: float, **options: Any) -> Iterator[Canvas]:
    """A figure of ``rows`` x ``columns`` panels; finish it with ``done`` before the style is put back."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = new_picture(WIDTH, height)
        yield Canvas(figure, figure.subplots(rows, columns, squeeze=False, **options))


def band(axis: Any, x: Sequence[float], seeds: Sequence[Sequence[float]], label: str, place: int) -> None:
    """A line through the means of ``seeds`` (one list of percentages for each x), a standard deviation about it."""
    mean = [fmean(values) for values in seeds]
    spread = [stdev(values) if len(values) > 1 else 0.0 for values in seeds]
    colour = COLOURS[place % len(COLOURS)]
    low, high = ([min(max(m + sign * s, 0.0), 100.0) for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
    if len(x) > 1:
        axis.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    else:  # a band has no width here
        axis.vlines(x, low, high, color=colour, alpha=0.4, linewidth=3, zorder=1)
    style = {"color": colour, "marker": MARKS[place % len(MARKS)], "linestyle": DASHES[place % len(DASHES)]}
    axis.plot(x, mean, label=label, markersize=4, linewidth=1.4, **style)


def level(axis: Any, values: Sequence[float], label: str) -> None:
    """A grey line across the panel: what does not depend on x."""
    axis.axhline(fmean(values), color=GREY, linewidth=1.2, linestyle=(0, (3, 2)), label=label)


def number_from_one(axis: Any, size: int) -> None:
    """Round numbers at the rows or columns 0, 1, ... of a matrix, which people count from 1 on."""
    every = round_number(size / MOST_TICKS)
    places = range(every - 1, size, every)
    axis.set_ticks(places, [str(place + 1) for place in places])


def name_ticks(axis: Any, names: Sequence[str], **options: Any) -> None:
    """Names at the rows or columns 0, 1, ... of a matrix; numbers where they are too many or look alike once cut."""
    cut = [short(name, MOST_LETTERS) for name in names]
    if len(names) > MOST_NAMES or len(set(cut)) < len(names):
        number_from_one(axis, len(names))
    else:
        axis.set_ticks(range(len(names)), cut, **options)


def legend_below(panel: Canvas, columns: int = 3) -> None:
    """One legend for all panels, under them, in as many columns as have room, at most ``columns``."""
    handles, labels = panel.axes[0, 0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "frameon": False}
    for number in range(min(columns, len(labels)), 0, -1):
        legend = panel.figure.legend(handles, labels, ncols=number, **place)
        if number == 1 or legend.get_window_extent().width <= panel.figure.bbox.width:
            return
        legend.remove()
