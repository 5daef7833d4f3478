"""Charts of plain numbers: lines, heat maps, dots. Each comes with its data as CSV and in words.

Nothing here knows runs or metrics; how a part of a chart is drawn is said in ``svg``.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from s6mod.report.svg import (
    BOTTOM,
    COLOURS,
    LEFT,
    LETTER,
    LINE,
    PLOT_HEIGHT,
    RIGHT,
    WIDTH,
    Cells,
    Value,
    axes,
    axis_names,
    document,
    fitting,
    legend,
    level_of,
    longest,
    marker,
    names_across,
    names_down,
    number,
    numbers,
    pen,
    scale,
    span,
    text,
    tiles,
    wrapped,
)

MOST_NUMBERS = 12  # cells side by side in which a number can be read
MOST_MARKERS = 25  # points of a line
LEAST_SPAN = 5  # percentage points across a dot chart: a tenth of a point shall not look like a gulf

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Chart:
    """A chart with its data; the fields are those of a figure in a study file."""

    name: str
    title: str
    svg: str
    csv: str
    alt: str


@dataclass(frozen=True)
class Series:
    """One line; ``colour`` counts. Lines with one label are told once in the legend. None leaves a gap."""

    label: str
    xs: Sequence[float]
    ys: Sequence[Value]
    colour: int = 0
    low: Sequence[float] | None = None  # of the band around it
    high: Sequence[float] | None = None
    note: str = ""  # tells lines of one label apart in the data


@dataclass(frozen=True)
class Dots:
    """One row of a dot chart: single values, their mean, half of its interval, and a published figure."""

    label: str
    values: Sequence[float]
    mean: float
    half: float | None = None
    published: float | None = None
    colour: int = 0


def lines(
    name: str,
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
) -> Chart:
    """A line chart; ``y_range``: at least this much is shown."""
    shown = [
        value for each in series for value in (*each.ys, *(each.low or ()), *(each.high or ())) if value is not None
    ]
    xs = [x for each in series for x in each.xs]
    low, high = span([*shown, *(y_range or ())])
    across, up = ticks(min(xs), max(xs), 6), ticks(low, high, 5)
    low, high = min(low, up[0]), max(high, up[-1])
    labels = list(dict.fromkeys((each.label, each.colour) for each in series))
    told, top = legend(labels, {each.label for each in series if any(_marked(each))})
    x_span = (max(xs) - min(xs)) or 1
    left = max(LEFT, 26 + longest(map(number, up)))
    plot_width = WIDTH - left - RIGHT

    def x_of(x: float) -> float:
        return left + plot_width * (x - min(xs)) / x_span if max(xs) > min(xs) else left + plot_width / 2

    def y_of(y: float) -> float:
        return top + PLOT_HEIGHT * (high - min(max(y, low), high)) / (high - low)

    marks = [(x_of(x), number(x)) for x in across], [(y_of(y), number(y)) for y in up]
    parts = [told, *axes(*marks, top, left=left)]
    parts += axis_names(x_label, y_label, top, PLOT_HEIGHT)
    for each in series:
        parts += _line(each, x_of, y_of)
    rows: list[Sequence[object]] = [("series", "run", x_label, y_label, "low", "high")]
    for each in series:
        nothing: list[Value] = [None] * len(each.xs)
        columns = zip(each.xs, each.ys, each.low or nothing, each.high or nothing, strict=True)
        rows += [(each.label, each.note, *column) for column in columns]
    alt = f"Line chart of {y_label} against {x_label}. " + " ".join(map(_tell, series))
    return Chart(name, title, document(name, title, alt, parts, top + PLOT_HEIGHT + BOTTOM), to_csv(rows), alt)


def heat_map(
    name: str,
    title: str,
    cells: Cells,
    rows: Sequence[str],
    columns: Sequence[str],
    x_label: str,
    y_label: str,
    unit: str,
    top_value: float,
    cuts: Sequence[int] = (),
    square: bool = True,
    faint: bool = False,
) -> Chart:
    """A matrix in colours from 0 to ``top_value``; None is blank; ``cuts``: lines before these rows and columns.

    ``faint``: small values fade into the page and 0 is blank, for matrices that are mostly small.
    """
    down = fitting(rows, _sizes(rows, columns, y_label, square)[2])
    left, wide, tall = _sizes(down, columns, y_label, square)
    top, height = 30, tall * len(rows)
    levels = [
        [None if value is None or (faint and not value) else level_of(value, top_value) for value in row]
        for row in cells
    ]
    parts = [scale(left, top_value, unit, faint)]
    parts += [f'<g transform="translate({left} {top}) scale({wide:.4f} {tall:.4f})" shape-rendering="crispEdges">']
    parts += [*tiles(levels, faint), "</g>"]
    digits = 0 if top_value > 2 else 2
    widest = longest(f"{value:.{digits}f}" for row in cells for value in row if value is not None)
    if len(columns) <= MOST_NUMBERS and tall >= LINE and wide >= widest:
        parts += numbers(cells, levels, (left, top), (wide, tall), digits, faint)
    for cut in cuts:
        x, y = left + cut * wide, top + cut * tall
        lines_there = f"M{x:.1f} {top}v{height:.1f}M{left} {y:.1f}h{wide * len(columns):.1f}"
        parts.append(f'<path d="{lines_there}" stroke="#8a919c" stroke-width=".6" stroke-opacity=".6"/>')
    parts += names_down(down, left, top, tall)
    across = down if columns == rows else fitting(columns, wide)  # both sides alike where both are classes
    below, room = names_across(across, left, top + height, wide)
    parts += below
    parts += axis_names(x_label, y_label, top, height, left + wide * len(columns) / 2, room)
    table = [(f"{y_label} / {x_label}", *columns), *((label, *row) for label, row in zip(rows, cells, strict=True))]
    alt = f"Heat map, {y_label} by {x_label}, {unit} from 0 to {number(top_value)}. {_tell_cells(cells, rows)}"
    return Chart(name, title, document(name, title, alt, parts, top + height + room + 28), to_csv(table), alt)


def _sizes(rows: Sequence[str], columns: Sequence[str], y_label: str, square: bool) -> tuple[float, float, float]:
    """Of a heat map: where it begins beside the names of its rows, and how wide and tall a cell is."""
    left = 34 + round(longest(rows))
    wide = (WIDTH - left - RIGHT) / max(len(columns), 1)
    wide = min(wide, 64.0) if square else wide
    tall = min(wide, 34.0) if square else max(2.0, min(20.0, 240 / max(len(rows), 1)))
    tall = max(tall, LETTER * len(y_label) / max(len(rows), 1))  # few rows: high enough for the name beside them
    return left, wide, tall


def dots(name: str, title: str, rows: Sequence[Dots], x_label: str) -> Chart:
    """Percentages: single values, mean and interval of each row on one axis; a cross is a published figure."""
    everything = [
        value
        for row in rows
        for value in (*row.values, row.mean - (row.half or 0), row.mean + (row.half or 0), row.published)
        if value is not None
    ]
    low, high = span(everything)
    margin = max(0.0, (LEAST_SPAN - (high - low)) / 2)
    low, high = span([min(max(end, 0.0), 100.0) for end in (low - margin, high + margin)])  # intervals may promise more
    across = ticks(low, high, 5)
    low, high = min(low, across[0]), max(high, across[-1])
    top, step, left = 8, 46, 16
    labels = [wrapped(row.label) for row in rows]
    bottoms = list(accumulate(step + 14 * (len(label) - 1) for label in labels))  # of rows
    height = bottoms[-1]

    def x_of(x: float) -> float:
        return left + (WIDTH - left - RIGHT) * (x - low) / (high - low)

    parts = axes([(x_of(x), number(x)) for x in across], [], top, height, left)
    parts += axis_names(x_label, "", top, height)
    for row, label, bottom in zip(rows, labels, bottoms, strict=True):
        y, c = top + bottom - 16, row.colour % len(COLOURS)
        parts += [text(left + 2, y - 14 * k, line, "ink", "start") for k, line in enumerate(reversed(label), start=1)]
        if row.half is not None:
            begin, end = (x_of(min(max(row.mean + side * row.half, low), high)) for side in (-1, 1))
            parts.append(f'<path class="c{c}" d="M{begin:.1f} {y}H{end:.1f}" {pen(c, 6, 0.3)}/>')
        parts += [f'<circle class="f{c}" cx="{x_of(v):.1f}" cy="{y}" r="3" fill="{COLOURS[c]}" fill-opacity=".55"/>'
                  for v in row.values]  # fmt: skip
        parts.append(f'<path class="c{c}" d="M{x_of(row.mean):.1f} {y - 8}v16" {pen(c, 3)}/>')
        if row.published is not None:
            x = x_of(row.published)
            parts.append(
                f'<path class="mark" d="M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10" stroke="#222" stroke-width="2"/>'
            )
    table: list[Sequence[object]] = [("learner", "value", "mean", "half of 95 % interval", "paper")]
    table += [(row.label, v, row.mean, row.half, row.published) for row in rows for v in row.values]
    told = (
        f"{row.label}: mean {number(row.mean)}"
        + (f" ± {number(row.half)}" if row.half is not None else "")
        + (f", paper {number(row.published)}" if row.published is not None else "")
        for row in rows
    )
    alt = f"Dot chart of {x_label}. " + "; ".join(told) + "."
    return Chart(name, title, document(name, title, alt, parts, top + height + BOTTOM), to_csv(table), alt)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers that cover low to high, about ``most`` of them; whole ones if they are whole and few."""
    if low == high:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    if float(low).is_integer() and float(high).is_integer() and step < 1:
        step = 1.0
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)] or [low]


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV text; None is empty."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows
    )
    return file.getvalue()


def _line(series: Series, x_of: Scale, y_of: Scale) -> Iterator[str]:
    c = series.colour % len(COLOURS)
    if series.low and series.high and len(series.xs) > 1:
        edge = [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in zip(series.xs, series.low, strict=True)]
        edge += [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in reversed([*zip(series.xs, series.high, strict=True)])]
        yield f'<path class="f{c}" d="M{"L".join(edge)}z" fill="{COLOURS[c]}" fill-opacity=".14"/>'
    drawn = "".join("M" + "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in piece) for piece in _pieces(series))
    thin = bool(series.note)
    yield f'<path class="c{c}" d="{drawn}" {pen(series.colour, 1.4 if thin else 2, 0.75 if thin else 1)}/>'
    yield from (marker(x_of(x), y_of(y), c) for x, y in _marked(series))


def _pieces(series: Series) -> list[list[tuple[float, float]]]:
    """The points between two gaps."""
    points = zip(series.xs, series.ys, strict=True)
    return [
        [(x, y) for x, y in group if y is not None]
        for known, group in groupby(points, lambda point: point[1] is not None)
        if known
    ]


def _marked(series: Series) -> Iterator[tuple[float, float]]:
    """Points that get a marker: those of a line of few points, and a point alone, which is no line."""
    every = len(series.xs) <= MOST_MARKERS and not series.note
    yield from (point for piece in _pieces(series) if every or len(piece) == 1 for point in piece)


def _tell(series: Series) -> str:
    points = [(x, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None]
    who = f"{series.label}, {series.note}" if series.note else series.label
    if not points:
        return f"{who}: no value."
    (x0, y0), (x1, y1) = points[0], points[-1]
    return f"{who}: {number(y0)} at {number(x0)}, {number(y1)} at {number(x1)}."


def _tell_cells(cells: Cells, rows: Sequence[str]) -> str:
    known = [value for row in cells for value in row if value is not None]
    if not known:
        return "No value."
    last = [value for value in cells[-1] if value is not None]
    told = f" Last row, {rows[-1]}: {', '.join(map(number, last))}." if 0 < len(last) <= MOST_NUMBERS else ""
    return f"Lowest {number(min(known))}, highest {number(max(known))}.{told}"
