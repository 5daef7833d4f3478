"""The report as a file, written once or again and again while runs go on."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from s6mod.errors import ConfigError
from s6mod.files import write_whole
from s6mod.report.page import page
from s6mod.report.source import read_runs, read_study
from s6mod.runs.store import Store


def write_report(
    runs: Sequence[Path],
    studies: Sequence[Path],
    known: Store,
    out: Path,
    every: float | None,
    written: Callable[[Path], object],
) -> None:
    """Write the page of ``runs``, with base and controls from ``known``; tell ``written`` of the first one.

    ``every``: seconds after which it is written again, until no run is under way; None: once.
    """
    if out.is_dir():
        raise ConfigError(f"expected a file for the report, got the folder {out}; name a file in it")
    asked = [read_study(file) for file in studies]
    first = True
    while True:
        found = read_runs(list(runs))
        under_way = every is not None and any(run.stored.status == "running" for run in found)
        write_whole(out, page(found, asked, known.finished, every if under_way else None))
        if first:
            written(out)
        if every is None or not under_way:
            return
        first = False
        time.sleep(every)
