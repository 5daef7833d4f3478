"""Predicting while another thread learns: how long a prediction waits, and what it takes from learning.

Each of the two threads has one thread of torch's. All cases are measured in turns within one run, so that whatever else
the machine does hits them alike. Times are of the clock on the wall: give it a machine with two cores to spare.
"""

import json
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Literal

from rich.table import Table

from s6mod.learner import Learner
from s6mod.runs.bench import WARM_UP, Bench, seconds_per_step, stream_batches, wait
from s6mod.runs.bench_growth import one_thread

TURNS = 4  # of each case
EVERY = 10  # batches between two copies that are published
BATCHES = 20  # different ones, over and over


@dataclass(frozen=True)
class Case:
    """Who does what at the same time."""

    name: str
    learning: bool
    asked: Literal["copy", "learner"] | None  # what is published; the learner itself, which takes turns; nobody asks
    rate: float | None = None  # predictions a second; None: one after the other


IDLE, ALONE = Case("nobody learns", False, "copy"), Case("nobody asks", True, None)
CASES = [
    IDLE,
    ALONE,
    Case("copy, 20/s", True, "copy", 20),
    Case("copy, 100/s", True, "copy", 100),
    Case("copy, no pause", True, "copy"),
    Case("learner, no pause", True, "learner"),
]


@dataclass(frozen=True)
class Live:
    """One row of the table; of a case without predictions or without learning the others are None."""

    learner: str
    case: str
    predictions: int
    p50_ms: float | None  # of a single image, from the call to its label
    p99_ms: float | None
    ratio: float | None  # p99 by the p50 where nobody learns
    steps_per_second: float | None
    share: float | None  # of the steps a second where nobody asks
    learner_bytes: int  # without the copy
    copy_bytes: int


@dataclass
class _Found:
    """What was measured of a case so far."""

    latencies: list[float] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0


def run_live(bench: Bench) -> None:
    """The table of each method and branch; ``seconds`` are for each case."""
    contenders = [bench.contender(name, branch, "auto") for name, branch in bench.known]
    rows: list[Live] = []
    with one_thread():
        for contender in contenders:
            learner = contender.learner()
            seconds_per_step(learner, WARM_UP if learner.engine.device.type == "cuda" else 2)
            rows += measure(contender.name, learner, bench.seconds)
        load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
        facts = bench.facts(learner.engine.device) | {"load": load}
    if bench.as_json:
        print(json.dumps({"environment": facts, "live": [asdict(row) for row in rows]}, indent=1))
        return
    for contender in contenders:
        bench.console.print(_table(contender.name, [row for row in rows if row.learner == contender.name], facts))
    bench.console.print(
        f"one image a prediction, one thread of torch each, a copy every {EVERY} batches; "
        "by idle: p99 by the p50 where nobody learns; share: of the steps a second where nobody asks; "
        f"{os.cpu_count()} cores, load of the machine at the end {load}"
    )


def measure(name: str, learner: Learner, seconds: float) -> list[Live]:
    """All cases of a learner, in turns."""
    found = {case: _Found() for case in CASES}
    learner_bytes, copy_bytes = learner.nbytes, learner.publish().nbytes
    for _ in range(TURNS):
        for case in CASES:
            _take_turn(learner, case, seconds / TURNS, found[case])
    idle = _percentile(found[IDLE].latencies, 0.5)
    alone = found[ALONE].steps / found[ALONE].seconds
    rows = []
    for case, of in found.items():
        p50, p99 = ((_percentile(of.latencies, share) if of.latencies else None) for share in (0.5, 0.99))
        speed = of.steps / of.seconds if case.learning else None
        rows.append(
            Live(
                name,
                case.name,
                len(of.latencies),
                None if p50 is None else 1000 * p50,
                None if p99 is None else 1000 * p99,
                None if p99 is None else p99 / idle,
                speed,
                None if speed is None else speed / alone,
                learner_bytes,
                copy_bytes,
            )
        )
    return rows


def _take_turn(learner: Learner, case: Case, seconds: float, found: _Found) -> None:
    image = next(stream_batches(1))[0][:1]
    end = time.perf_counter() + seconds
    with _learning(learner, found) if case.learning else nullcontext():
        while True:  # once at least
            begin = time.perf_counter()
            if case.asked is not None:
                asked = learner if case.asked == "learner" else learner.published
                assert asked is not None
                asked.predict(image)
                found.latencies.append(time.perf_counter() - begin)
            due = end if case.asked is None else begin if case.rate is None else begin + 1 / case.rate
            time.sleep(max(0.0, min(due, end) - time.perf_counter()))
            if time.perf_counter() >= end:
                break


@contextmanager
def _learning(learner: Learner, found: _Found) -> Iterator[None]:
    """Another thread learns, one step at least."""
    stop, failed = threading.Event(), []

    def learn() -> None:
        begin = time.perf_counter()
        try:
            for x, y in cycle(stream_batches(BATCHES)):
                learner.learn(x, y)
                found.steps += 1
                if learner.steps % EVERY == 0:
                    learner.publish()
                if stop.is_set():
                    break
            wait(learner)
        except BaseException as error:
            failed.append(error)
        found.seconds += time.perf_counter() - begin

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _table(name: str, rows: list[Live], facts: dict[str, object]) -> Table:
    held, copied = rows[0].learner_bytes / 2**20, rows[0].copy_bytes / 2**20
    title = f"{name}: width {facts['width']}, {facts['device']}; learner {held:.1f} MiB, copy {copied:.1f} MiB"
    table = Table(title=title)
    for column in ("asked", "number", "p50 ms", "p99 ms", "by idle", "steps/s", "share"):
        table.add_column(column, justify="left" if column == "asked" else "right", no_wrap=True)
    for row in rows:
        cells = [_number(row.p50_ms, ".2f"), _number(row.p99_ms, ".2f"), _number(row.ratio, ".1f")]
        cells += [_number(row.steps_per_second, ".2f"), _number(row.share, ".0%")]
        table.add_row(row.case, f"{row.predictions:,}", *cells)
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
