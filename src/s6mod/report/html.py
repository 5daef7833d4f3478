"""Pieces of the page: figures with their downloads, tables, texts. All text is escaped here."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from s6mod import decimals
from s6mod.paper.estimate import Estimate
from s6mod.report.charts import Chart

LONG = 40  # letters of a cell that is broken into lines


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own."""

    name: str
    title: str
    body: str


def figure(chart: Chart, caption: str, picture: str | None = None) -> str:
    """A chart with its caption; inline, unless there is a ``picture`` of it."""
    name = escape(chart.name)
    note = f"<small>{escape(caption)}</small>" if caption else ""
    return (
        f'<figure data-name="{name}"><figcaption>{escape(chart.title)}{note}</figcaption>{picture or chart.svg}'
        f'<div class="get"><button type="button" class="svg" hidden aria-label="{name} as SVG">SVG</button>'
        f"{download(chart.csv, chart.name + '.csv', 'CSV', 'text/csv')}</div></figure>"
    )


def foreign_figure(chart: Chart) -> str:
    """A chart from a file: as an image, in which no script runs and nothing is fetched."""
    data = base64.b64encode(chart.svg.encode()).decode()
    return figure(chart, "", f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(chart.alt)}">')


def download(content: str, file: str, label: str, kind: str) -> str:
    """A link that saves a text; it needs no script."""
    data = quote(content, safe=" ,.:;-_()/=+")
    return (
        f'<a class="get" download="{escape(file)}" href="data:{kind};charset=utf-8,{escape(data)}" '
        f'aria-label="{escape(file)}">{escape(label)}</a>'
    )


def figures(parts: Iterable[str], kind: str = "") -> str:
    """Figures side by side, as many as fit; nothing if there are none; ``kind`` is a further class."""
    drawn = "".join(parts)
    return f'<div class="{f"figures {kind}".strip()}">{drawn}</div>' if drawn else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """A table that scrolls by itself where it is too wide; columns of numbers are flush right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    kinds = [_kind(column) for column in zip(*texts, strict=True)]
    kinds = kinds or [""] * len(columns)
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True))
    body = "".join(f"<tr>{_row(row, kinds)}</tr>" for row in texts)
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f"<table>{told}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(texts: Sequence[str], kinds: Sequence[str]) -> str:
    others = (f"<td{kind}>{escape(text)}</td>" for text, kind in zip(texts[1:], kinds[1:], strict=True))
    return f'<th scope="row"><span>{escape(texts[0])}</span></th>' + "".join(others)


def _text(cell: Any) -> str:
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _kind(column: Sequence[str]) -> str:
    """The class of a column: of numbers, of texts so long that they are broken, or none."""
    if all(map(_numeric, column)):
        return ' class="n"'
    return ' class="long"' if any(len(text) > LONG for text in column) else ""


def _numeric(text: str) -> bool:
    return not text or text[0] in "0123456789+-±."


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; ``kind`` is its class."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def spread(estimate: Estimate | None) -> str:
    """Mean ± standard deviation, or what there is of it."""
    return decimals.spread(estimate.mean, estimate.std, gap=" ") if estimate else ""
