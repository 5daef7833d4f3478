"""Runs of a store as rows that a person reads or a program takes."""

import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from s6mod.columns import align
from s6mod.config import nearest
from s6mod.decimals import decimal
from s6mod.errors import ConfigError
from s6mod.run_files import RunFiles
from s6mod.runs.store import StoredRun

SORTS = {
    "cell": "cell",
    "seed": "seed",
    "status": "status",
    "acc": "accuracy",
    "af": "forgetting",
    "time": "train_seconds",
    "ms": "ms_per_step",
    "bytes": "bytes_held",
    "device": "device",
    "code": "source",
}
ROOM = 24  # characters that changes need beside the other columns; with less they stand below


def as_rows(runs: Sequence[StoredRun], sort: str) -> list[dict[str, Any]]:
    """Plain values of each run, sorted; those without the value come last."""
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise ConfigError(f"expected a column to sort by, got {sort!r}; {nearest(name, SORTS)}")
    rows = sorted((_row(run) for run in runs), key=lambda row: (row["cell"], row["changes"], row["seed"]))
    known = [row for row in rows if row[SORTS[name]] is not None]
    known.sort(key=lambda row: row[SORTS[name]], reverse=sort.startswith("-"))
    return known + [row for row in rows if row[SORTS[name]] is None]


def lines(rows: Sequence[dict[str, Any]], width: int | None = None) -> Iterator[str]:
    """Aligned lines for a terminal of that width (None: without end); changes stand beside or, without room, below."""
    table = list(_columns(rows))
    if not any(row["changes"] for row in rows):
        yield from table
        return
    edge = max(map(len, table)) + 1
    beside = width is None or width - edge >= ROOM
    indent = edge if beside else 4
    yield table[0].ljust(edge) + "changes" if beside else table[0]
    for line, row in zip(table[1:], rows, strict=True):
        text = ", ".join(row["changes"])
        parts = [text] if width is None else textwrap.wrap(text, max(width - indent, 1), break_on_hyphens=False)
        first = parts.pop(0) if beside and parts else ""
        yield (line.ljust(edge) + first).rstrip()
        yield from (" " * indent + part for part in parts)


def _columns(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    short = {"bfloat16": "bf16", "float32": "f32"}
    texts = [("status", "cell", "seed", "in", "Acc", "AF", "s", "ms", "MB", "device", "code")]
    texts += [
        (
            row["status"],
            row["cell"],
            str(row["seed"]),
            short.get(row["precision"], row["precision"]),
            _number(row["accuracy"], 1, 2),
            _number(row["forgetting"], 1, 2),
            _number(row["train_seconds"], 1, 0),
            _number(row["ms_per_step"], 1, 1),
            _number(row["bytes_held"], 1e6, 0),
            row["device"].removeprefix("NVIDIA "),
            row["source"][:6],
        )
        for row in rows
    ]
    return align(texts, frozenset({0, 1, 9, 10}))


def summary(runs: Sequence[StoredRun]) -> str:
    """How many there are of each status."""
    counts = Counter(run.status for run in runs)
    told = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}" + (f": {told}" if told else "")


def _row(run: StoredRun) -> dict[str, Any]:
    result = run.result or {}
    return {
        "status": run.status,
        "cell": run.cell,
        "changes": run.changes,
        "seed": run.seed,
        "precision": run.precision,
        "accuracy": run.metric("accuracy"),
        "forgetting": run.metric("forgetting"),
        "train_seconds": result.get("train_seconds"),
        "ms_per_step": result.get("ms_per_step"),
        "bytes_held": result.get("bytes_held"),
        "device": run.environment.get("device", ""),
        "source": run.environment.get("source", ""),
        "hash": run.hash,
        "path": str(run.path),
    }


def _number(value: float | None, unit: float, digits: int) -> str:
    return "" if value is None else decimal(value / unit, digits)


def never_begun(folders: Iterable[Path]) -> list[str]:
    """A sentence on runs that failed before they had a configuration, so that no list can name them."""
    found = (files for folder in folders for files in map(RunFiles, sorted(folder.glob("*/"))))
    early = [files.failure for files in found if os.path.isfile(files.failure) and not files.begun]
    if not early:
        return []
    runs = "1 run" if len(early) == 1 else f"{len(early)} runs"
    return [f"{runs} failed before there was anything to list: see {early[0]}"]
