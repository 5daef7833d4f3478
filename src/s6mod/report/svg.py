"""Parts of charts as SVG text: axes, legend, markers, tiles, texts.

Colours stand in the elements themselves, so that a chart can be saved and used elsewhere; classes let a page change
them in dark mode. Series differ by marker as well as by colour, and the colours (Okabe and Ito; viridis) can be told
apart by colour-blind readers.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0568A", "#C98500", "#3A9BD9")
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
WIDTH = 400  # of every chart, in its own pixels: legible at column width and on a phone
LEFT, RIGHT, BOTTOM = 50, 14, 44
PLOT_HEIGHT = 200
LEVELS = 24

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


def axis_names(x_label: str, y_label: str, top: float, height: float, middle: float = (WIDTH + LEFT) / 2) -> list[str]:
    """The names below and beside the plot."""
    y = top + height / 2
    down = text(11, y, y_label, "ink", more=f' transform="rotate(-90 11 {y:.1f})"') if y_label else ""
    return [text(middle, top + height + 36, x_label, "ink"), down]


def legend(labels: Sequence[tuple[str, int]]) -> tuple[str, float]:
    """The entries, in as many lines as they take, and the height below which the plot begins."""
    parts, x, y = [], float(LEFT), 12.0
    for label, colour in labels:
        label, c = short(label, 52), colour % len(COLOURS)
        width = 32 + 6.6 * len(label)
        if x > LEFT and x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + 16
        parts.append(f'<path class="c{c}" d="M{x:.0f} {y - 4:.0f}h16" {pen(colour, 2)}/>' + marker(x + 8, y - 4, c))
        parts.append(text(x + 21, y, label, "ink", "start"))
        x += width
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
    light = level < 0.55 * LEVELS
    if faint:
        return 'class="ink" fill="#22252b"' if light else 'fill="#fff"'
    return 'fill="#fff"' if light else 'fill="#111"'


def names_down(names: Sequence[str], left: float, top: float, tall: float) -> Iterator[str]:
    """Names of rows, as many as can be read."""
    every = math.ceil(12 / tall)
    for place in range(0, len(names), every):
        yield text(left - 5, top + (place + 0.5) * tall + 4, short(names[place], 16), "soft", "end")


def names_across(names: Sequence[str], left: float, base: float, wide: float) -> Iterator[str]:
    """Names of columns, as many as can be read."""
    every = math.ceil((8 + 6.8 * max(map(len, names), default=0)) / wide)
    for place in range(0, len(names), every):
        yield text(left + (place + 0.5) * wide, base + 16, names[place], "soft")


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
    return min(LEVELS - 1, max(0, int(LEVELS * value / (top_value or 1))))


def paint(level: int, faint: bool) -> str:
    """Attributes of a tile: by viridis; or ``faint``: the less, the more of the page shines through."""
    if faint:
        return f'fill="{COLOURS[0]}" fill-opacity="{((level + 1) / LEVELS) ** 0.7:.2f}"'
    place = level / (LEVELS - 1) * (len(VIRIDIS) - 1)
    low = min(int(place), len(VIRIDIS) - 2)
    pairs = [(int(VIRIDIS[low][k : k + 2], 16), int(VIRIDIS[low + 1][k : k + 2], 16)) for k in (1, 3, 5)]
    return 'fill="#' + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs) + '"'


def span(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest, never equal."""
    low, high = min(values), max(values)
    return (low, high) if low < high else (low - 1, high + 1)


def number(value: float) -> str:
    """A number at three digits."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def short(text: str, most: int) -> str:
    """The text, cut where it is longer than ``most``."""
    return text if len(text) <= most else text[: most - 1] + "…"
