"""Tables as text: for the terminal, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape

from s6mod.columns import align
from s6mod.decimals import decimal, difference, spread
from s6mod.paper.estimate import Estimate
from s6mod.paper.tables import Filled, Row, Sides

COLUMNS = ("learner", "in", "n", "ours", "95 %", "paper", "diff", "verdict", "gain", "ms", "MB")
SHORT = {"bfloat16": "bf16", "float32": "f32", "": ""}
STYLES = {"agrees": "green", "differs": "red", "open": "yellow", "not run": "dim"}
LEGEND = (
    "ours and the paper's: mean ± standard deviation over n seeds (the paper's ± as printed); 95 %: half of our "
    "interval; gain: over the same method without a branch, paired by seed, ± half of its 95 % interval; in: "
    "precision; ms: of a training step, shared with the runs beside it; MB: held between steps"
)

# Behind a gain whose two sides are not known to come from code that computes the same.
MARKS: dict[Sides | None, str] = {"other numerics": "†", "not known": "‡"}
NOTES = {
    "†": "†: the two sides of this gain differ in their numerics, so part of it may come from a change of the code",
    "‡": "‡: the two sides come from different versions of the code, of before numerics were counted",
}


def gain_text(gain: Estimate | None, sides: Sides | None, gap: str = "") -> str:
    """A gain with half of its interval and its mark, if it has one."""
    return difference(gain.mean, gain.half, gap) + MARKS.get(sides, "") if gain else ""


def notes(texts: Iterable[str]) -> list[str]:
    """The sentences on the marks that stand in the texts."""
    whole = "".join(texts)
    return [note for mark, note in NOTES.items() if mark in whole]


def notes_of(rows: Iterable[Row]) -> list[str]:
    """The same for the gains of rows."""
    return notes(MARKS.get(row.sides, "") for row in rows)


def cells(row: Row) -> list[str]:
    """The texts of one row, one for each column."""
    ours, paper = row.ours, row.paper
    return [
        row.learner,
        SHORT.get(row.precision, row.precision),
        str(ours.n) if ours else "",
        spread(ours.mean, ours.std) if ours else "",
        f"±{decimal(ours.half)}" if ours and ours.half is not None else "",
        spread(*paper) if paper else "",
        difference(row.difference) if row.difference is not None else "",
        str(row.verdict),
        gain_text(row.gain, row.sides),
        f"{row.ms:.1f}" if row.ms is not None else "",
        f"{row.bytes_held / 1e6:.0f}" if row.bytes_held is not None else "",
    ]


def show(table: Filled, console: Console) -> None:
    """Print for a person; a column that has nothing in the whole table is left out."""
    console.print(f"[bold]{escape(table.title)}[/bold]: {table.summary()}", highlight=False)
    if not table.rows:
        console.print("nothing has been run: s6mod sweep runs cells, --store names another folder", highlight=False)
        return
    texts = [cells(row) for row in table.rows]
    used = [place for place in range(len(COLUMNS)) if any(text[place] for text in texts)]
    left = frozenset(at for at, place in enumerate(used) if COLUMNS[place] in ("learner", "verdict"))
    for section, group in groupby(zip(table.rows, texts, strict=True), lambda pair: pair[0].section):
        console.print(section, style="italic", highlight=False, markup=False)
        rows, chosen = zip(*group, strict=True)
        header, *lines = align([[text[place] for place in used] for text in (COLUMNS, *chosen)], left)
        console.print(header, style="bold", soft_wrap=True, highlight=False, markup=False)
        for row, line in zip(rows, lines, strict=True):
            console.print(line, style=STYLES.get(row.verdict.word), soft_wrap=True, highlight=False, markup=False)
    legend = LEGEND.replace(Filled.over, table.over)
    console.print("; ".join([legend, *notes_of(table.rows)]), style="dim", highlight=False)


def markdown(tables: Sequence[Filled]) -> str:
    """A heading for each table and section."""
    lines: list[str] = []
    for table in tables:
        lines += [f"## {table.title}", "", f"{table.summary()}.", ""]
        for section, rows in groupby(table.rows, lambda row: row.section):
            lines += [f"**{section}**", "", f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
            lines += [f"| {' | '.join(text.replace('|', '/') for text in cells(row))} |" for row in rows]
            lines.append("")
        lines += [text for note in _told_below(table) for text in (f"{note}.", "")]
    return "\n".join(lines)


def _told_below(table: Filled) -> list[str]:
    """What a table is to be read with: what its gains are over, if not the usual, and its marks."""
    return [f"gain: over {table.over}"] * (table.over != Filled.over) + notes_of(table.rows)


def latex(tables: Sequence[Filled]) -> str:
    """A booktabs table each."""
    lines = []
    for table in tables:
        lines += [r"\begin{table}", rf"\caption{{{_tex(table.title)}}}", r"\begin{tabular}{lrrrrrrlrrr}", r"\toprule"]
        lines.append(" & ".join(map(_tex, COLUMNS)) + r" \\")
        for section, rows in groupby(table.rows, lambda row: row.section):
            lines += [r"\midrule", rf"\multicolumn{{{len(COLUMNS)}}}{{l}}{{{_tex(section)}}} \\"]
            lines += [" & ".join(map(_tex, cells(row))) + r" \\" for row in rows]
        told = [_tex(f"{note}.") for note in _told_below(table)]
        lines += [r"\bottomrule", r"\end{tabular}", *told, r"\end{table}"]
    return "\n".join(lines)


def as_csv(tables: Sequence[Filled]) -> str:
    """All rows of all tables, numbers at full length."""
    rows = [_flat(table, row) for table in tables for row in table.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["table"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def as_json(tables: Sequence[Filled]) -> str:
    """The same as CSV, as a list of objects."""
    return json.dumps([_flat(table, row) for table in tables for row in table.rows], indent=1)


TEXTS: dict[str, Callable[[Sequence[Filled]], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
}


def _flat(table: Filled, row: Row) -> dict[str, Any]:
    paper, paper_spread = row.paper or (None, None)
    return {
        "table": table.name,
        "section": row.section,
        "learner": row.learner,
        "cell": row.cell,
        "precision": row.precision or None,
        "seeds": " ".join(map(str, row.seeds)),
        **_numbers("", row.ours),
        "paper": paper,
        "paper_spread": paper_spread,
        "difference": row.difference,
        "verdict": row.verdict.word,
        "seeds_to_decide": row.verdict.seeds,
        **_numbers("gain_", row.gain),
        "gain_mixed": row.sides == "other numerics",
        "gain_sides": row.sides,
        "ms_per_step": row.ms,
        "bytes_held": row.bytes_held,
        "code": " ".join(row.code),
    }


def _numbers(prefix: str, estimate: Estimate | None) -> dict[str, float | None]:
    return {f"{prefix}{key}": getattr(estimate, key) if estimate else None for key in ("n", "mean", "std", "half")}


TEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "%_&#$"}
    # Braces around nothing: a space behind a command of letters would be lost.
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "{": r"\{", "}": r"\}"}
    | {"±": r"$\pm$", "†": r"\dag{}", "‡": r"\ddag{}"}
)


def _tex(text: str) -> str:
    return text.translate(TEX)
