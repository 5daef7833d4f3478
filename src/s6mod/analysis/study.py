"""What an analysis leaves behind: text, tables and figures with their data, as files for people, programs and reports.

``study.json`` holds all of it; beside it each figure lies as SVG, PNG and CSV, and each table of results as Markdown,
CSV and JSON.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s6mod.errors import ConfigError
from s6mod.files import write_whole
from s6mod.paper.render import COLUMNS, TEXTS, cells
from s6mod.paper.tables import Filled
from s6mod.report.source import STUDY

MARK = "<!-- Written by: s6mod study"  # on every page of a study


@dataclass(frozen=True)
class Drawing:
    """A figure: how it looks, what it shows in words, and the numbers it was drawn from."""

    name: str
    title: str
    alt: str
    csv: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class PlainTable:
    """A table of texts."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]]


@dataclass(frozen=True)
class Study:
    """An analysis with its results."""

    name: str  # of its folder
    title: str
    text: str
    drawings: list[Drawing]
    tables: list[PlainTable] = field(default_factory=list)
    filled: Filled | None = None  # a table of results, if it has one: shown before the others
    findings: list[str] = field(default_factory=list)  # what it says, in sentences of their own

    def write(self, folder: Path) -> None:
        """Write everything; what an earlier analysis left under the same names is replaced, ``study.json`` last."""
        folder.mkdir(parents=True, exist_ok=True)
        for each in self.drawings:
            write_whole(folder / f"{each.name}.svg", each.svg)
            write_whole(folder / f"{each.name}.csv", each.csv)
            (folder / f"{each.name}.png").write_bytes(each.png)
        if self.filled is not None:
            for form, ending in (("markdown", "md"), ("csv", "csv"), ("json", "json")):
                write_whole(folder / f"table.{ending}", TEXTS[form]([self.filled]) + "\n")
        write_whole(folder / STUDY, json.dumps(self.plain(), indent=1))

    def plain(self) -> dict[str, Any]:
        """What ``study.json`` holds."""
        names = ("name", "title", "svg", "csv", "alt")
        return {
            "kind": "study",
            "title": self.title,
            "text": " ".join([self.text, *self.findings]),
            "figures": [{name: getattr(each, name) for name in names} for each in self.drawings],
            "tables": [
                {"title": each.title, "columns": list(each.columns), "rows": each.rows}
                for each in [*_plain_tables(self.filled), *self.tables]
            ],
        }


def page_of(study: Study, command: str, images: str) -> str:
    """A study as a page of Markdown; ``images``: where its figures lie from there."""
    parts = [f"# {study.title}", f"{MARK} {command}. Do not edit. -->", study.text]
    parts += ["\n".join(f"* {each}" for each in study.findings)] if study.findings else []
    parts += [f"![{each.alt}]({images}/{each.name}.png)" for each in study.drawings]
    for table in [*_plain_tables(study.filled), *study.tables]:
        lines = [table.columns, ["---"] * len(table.columns), *table.rows]
        parts += [f"## {table.title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(parts) + "\n"


def write_page(study: Study, file: Path, command: str) -> None:
    """Write it with its figures beside it in ``images``, in place of an older one but of nothing else."""
    if file.exists() and (found := file.read_text(encoding="utf-8")) and MARK not in found:
        raise ConfigError(f"expected a new file or an older page of a study, got {file}; name another")
    folder = file.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for each in study.drawings:
        (folder / f"{each.name}.png").write_bytes(each.png)
    write_whole(file, page_of(study, command, folder.name))


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _plain_tables(table: Filled | None) -> list[PlainTable]:
    """One for each section; columns that have nothing are left out."""
    if table is None:
        return []
    sections = dict.fromkeys(row.section for row in table.rows)
    found = []
    for section in sections:
        texts = [cells(row) for row in table.rows if row.section == section]
        used = [place for place in range(len(COLUMNS)) if any(text[place] for text in texts)]
        found.append(
            PlainTable(section, tuple(COLUMNS[place] for place in used), [[text[p] for p in used] for text in texts])
        )
    return found
