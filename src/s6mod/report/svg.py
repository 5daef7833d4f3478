"""Parts of charts as SVG text: axes, legend, markers, tiles, texts.

Colours stand in the elements themselves, so that a chart can be saved and used elsewhere; classes let a page change
them in dark mode. Series of few points differ by marker as well as by colour, and the colours (Okabe and Ito; viridis)
can be told apart by colour-blind readers.
"""

import math
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from s6mod.decimals import round_number

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0568A", "#C98500", "#3A9BD9")
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
WIDTH = 400  # of every chart, in its own pixels: legible at column width and on a phone
LEFT, RIGHT, BOTTOM = 50, 14, 44
PLOT_HEIGHT = 200
LEVELS = 24
SMALLEST, HIGHEST = 1e-290, 1e300  # sizes that can be told apart and drawn
LETTER = 7.0  # width of a letter, about
LINE = 12.0  # from one line of text to the next, at the least
MOST_LETTERS = 16  # of a name beside a row or below a column

Value = float | None
Cells = Sequence[Sequence[Value]]
Levels = Sequence[Sequence[int | None]]


def document(name: str, title: str, alt: str, parts: Iterable[str], height: float) -> str:
    """The whole chart with its text alternative."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-labelledby="{escape(name)}-t {escape(name)}-d" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="none"><title id="{escape(name)}-t">{escape(title)}</title>'
        f'<desc id="{escape(name)}-d">{escape(alt)}</desc>' + "".join(parts) + "</svg>"
    )


def text(x: float, y: float, text: str, kind: str, anchor: str = "middle", more: str = "") -> str:
    """A text; ``kind`` is ink or soft."""
    fill = {"ink": "#22252b", "soft": "#5b6270"}[kind]
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(text)}</text>'
    )


def pen(colour: int, width: float, opacity: float = 1) -> str:
    """Attributes of a line of a series; those for which no colour is left are dashed."""
    dashes = f' stroke-dasharray="{max(1, 6 // (colour // len(COLOURS)))} 3"' if colour >= len(COLOURS) else ""
    shade = f'stroke="{COLOURS[colour % len(COLOURS)]}" stroke-opacity="{opacity}"'
    return f'{shade} stroke-width="{width}" stroke-linejoin="round"{dashes}'


def axes(
    across: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]], top: float, height: float = PLOT_HEIGHT,
    left: float = LEFT,
) -> list[str]:  # fmt: skip
    """Grid, base line and tick labels; with nothing upwards the grid is vertical."""
    grid = "".join(f"M{left} {y:.1f}H{WIDTH - RIGHT}" for y, _ in up) or "".join(
        f"M{x:.1f} {top}v{height}" for x, _ in across
    )
    base = top + height
    return [
        f'<path class="grid" d="{grid}" stroke="#dfe3e8"/>',
        f'<path class="axis" d="M{left} {base}H{WIDTH - RIGHT}" stroke="#8a919c"/>',
        *(text(x, base + 16, label, "soft") for x, label in across),
        *(text(left - 6, y + 4, label, "soft", "end") for y, label in up),
    ]


def axis_names(
    x_label: str, y_label: str, top: float, height: float, middle: float = (WIDTH + LEFT) / 2, room: float = 16
) -> list[str]:
    """The names below and beside the plot; ``room`` is between: for what stands at the ticks."""
    y = top + height / 2
    down = text(11, y, y_label, "ink", more=f' transform="rotate(-90 11 {y:.1f})"') if y_label else ""
    return [text(middle, top + height + room + 20, x_label, "ink"), down]


def legend(labels: Sequence[tuple[str, int]], marked: Collection[str]) -> tuple[str, float]:
    """The entries, in as many lines as they take, and the height below which the plot begins; ``marked``: those whose
    lines have markers.
    """
    begin = 8.0
    parts, x, y = [], begin, 12.0
    for label, colour in labels:
        lines, c = wrapped(label), colour % len(COLOURS)
        width = 40 + 6.6 * max(map(letters, lines))
        if x > begin and x + width > WIDTH - RIGHT:
            x, y = begin, y + 16
        parts.append(f'<path class="c{c}" d="M{x:.0f} {y - 4:.0f}h24" {pen(colour, 2)}/>')
        parts += [marker(x + 12, y - 4, c)] * (label in marked)
        parts += [text(x + 29, y + 14 * k, line, "ink", "start") for k, line in enumerate(lines)]
        x, y = x + width, y + 14 * (len(lines) - 1)
    return "".join(parts), y + 12


def marker(x: float, y: float, colour: int) -> str:
    """The mark of a series."""
    shapes = ("m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0", "m-3 -3h6v6h-6z", "m0 -4l4 7h-8z", "m0 -4l4 4l-4 4l-4 -4z",
              "m-4 -3h8l-4 7z", "m-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z")  # fmt: skip
    return f'<path class="f{colour}" d="M{x:.1f} {y:.1f}{shapes[colour]}" fill="{COLOURS[colour]}"/>'


def tiles(levels: Levels, faint: bool) -> Iterator[str]:
    """One path for each colour; neighbours of one colour in a row are one rectangle."""
    paths: dict[int, list[str]] = {}
    for y, row in enumerate(levels):
        x = 0
        for level, group in groupby(row):
            width = len(list(group))
            if level is not None:
                paths.setdefault(level, []).append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    for level, drawn in sorted(paths.items()):
        yield f'<path d="{"".join(drawn)}" {paint(level, faint)}/>'


def numbers(
    cells: Cells, levels: Levels, corner: tuple[float, float], size: tuple[float, float], digits: int, faint: bool
) -> Iterator[str]:
    """The values in the cells, so many digits behind the point."""
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            level = levels[i][j]
            if value is not None and level is not None:
                place = f'x="{corner[0] + (j + 0.5) * size[0]:.1f}" y="{corner[1] + (i + 0.5) * size[1] + 4:.1f}"'
                yield f'<text {place} text-anchor="middle" {_ink_on(level, faint)}>{value:.{digits}f}</text>'


def _ink_on(level: int, faint: bool) -> str:
    if faint:  # blue on the page: an ink that changes with it, then white
        return 'class="ink" fill="#22252b"' if level < 0.75 * LEVELS else 'fill="#fff"'
    return 'fill="#fff"' if level < 0.45 * LEVELS else 'fill="#111"'


def fitting(names: Sequence[str], size: float) -> Sequence[str]:
    """Names of rows or columns so large; words give way to their numbers where they have no room beside each other, and
    where those that are cut look alike.

    Of numbers some can be left out, of words not: nobody could guess them.
    """
    told_apart = len({short(name, MOST_LETTERS) for name in names}) == len(names)
    return names if (size >= LINE and told_apart) or all(map(str.isdigit, names)) else _count(names)


def _count(names: Sequence[str]) -> list[str]:
    return [str(place + 1) for place in range(len(names))]


def _chosen(names: Sequence[str], size: float, room: float) -> range:
    """Which of them are drawn, each taking so much room; of a count from 1 on, round numbers."""
    every = math.ceil(room / size)
    if list(names) != _count(names):
        return range(0, len(names), every)
    every = round_number(every)
    return range(every - 1, len(names), every)


def names_down(names: Sequence[str], left: float, top: float, tall: float) -> Iterator[str]:
    """Names of rows, as many as can be read."""
    for place in _chosen(names, tall, LINE):
        yield text(left - 5, top + (place + 0.5) * tall + 4, short(names[place], MOST_LETTERS), "soft", "end")


def names_across(names: Sequence[str], left: float, base: float, wide: float) -> tuple[list[str], float]:
    """Names of columns, as many as can be read, and the height that they take; words too long stand upright."""
    length = longest(names)
    upright = length + 8 > wide and not all(map(str.isdigit, names))
    parts = []
    for place in _chosen(names, wide, LINE if upright else length + 8):
        x = left + (place + 0.5) * wide
        if upright:
            turned = f' transform="rotate(-90 {x + 4:.1f} {base + 6:.1f})"'
            parts.append(text(x + 4, base + 6, short(names[place], MOST_LETTERS), "soft", "end", turned))
        else:
            parts.append(text(x, base + 16, names[place], "soft"))
    return parts, length + 10 if upright else 16


def scale(left: float, top_value: float, unit: str, faint: bool) -> str:
    """What the colours mean."""
    bars = "".join(
        f'<rect x="{left + 5 * k}" y="8" width="5" height="9" {paint(k, faint)} shape-rendering="crispEdges"/>'
        for k in range(LEVELS)
    )
    return (
        text(left - 5, 16, "0", "soft", "end")
        + bars
        + text(left + 5 * LEVELS + 6, 16, f"{number(top_value)} {unit}", "soft", "start")
    )


def level_of(value: float, top_value: float) -> int:
    """The colour's number for a value of 0 ... ``top_value``."""
    top = top_value if top_value > 0 else 1.0
    value = min(max(value, 0.0), top)
    return min(LEVELS - 1, int(LEVELS * value / top if value < HIGHEST else LEVELS * (value / top)))


def paint(level: int, faint: bool) -> str:
    """Attributes of a tile: by viridis; or ``faint``: the less, the more of the page shines through."""
    if faint:
        return f'fill="{COLOURS[0]}" fill-opacity="{((level + 1) / LEVELS) ** 0.7:.2f}"'
    place = level / (LEVELS - 1) * (len(VIRIDIS) - 1)
    low = min(int(place), len(VIRIDIS) - 2)
    pairs = [(int(VIRIDIS[low][k : k + 2], 16), int(VIRIDIS[low + 1][k : k + 2], 16)) for k in (1, 3, 5)]
    return 'fill="#' + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs) + '"'


def span(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest that are drawn, never so close that a plot between them would have no height.

    A run that diverged may have losses of any size; those beyond ``HIGHEST`` lie on the edge.
    """
    low, high = (min(max(end, -HIGHEST), HIGHEST) for end in (min(values), max(values)))
    size = max(abs(low), abs(high), SMALLEST)
    margin = max(1.0, 1e-3 * size)
    return (low, high) if high - low > 1e-12 * size else (low - margin, high + margin)


def number(value: float) -> str:
    """A number at three digits."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"


def letters(text: str) -> int:
    """How many letters wide a text is: those of some scripts are as wide as two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def longest(names: Iterable[str]) -> float:
    """The width of the longest name, cut as it is drawn."""
    return LETTER * max((letters(short(name, MOST_LETTERS)) for name in names), default=0)


def wrapped(label: str) -> list[str]:
    """The lines of a label across the picture: never cut, since what tells it from others may stand at its end."""
    return textwrap.wrap(label, 50 * len(label) // max(1, letters(label))) or [""]


def short(text: str, most: int) -> str:
    """The text, cut where it is wider than ``most`` letters."""
    if letters(text) <= most:
        return text
    while letters(text) > most - 1:
        text = text[:-1]
    return text + "…"
