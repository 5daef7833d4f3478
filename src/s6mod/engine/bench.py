"""Speed and memory of a training step, measured in one run so that the ratios can be trusted.

Learners are timed in turns, a few steps each, so that whatever else the machine does hits all of them alike.
"""

import json
import multiprocessing
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from s6mod.engine.environment import describe
from s6mod.learner import Learner

MEMORY_SIZE = 2000
MEMORY_BATCH = 64
NUM_CLASSES = 100
STREAM_BATCH = 10
WARM_UP = 6  # steps: enough for a captured engine to have captured
BRANCHES = ("none", "s6mod", "confidence")


@dataclass(frozen=True)
class Subject:
    """A learner to be measured."""

    branch: str
    capture: str
    width: int
    device: str
    precision: str

    def learner(self) -> Learner:
        """A learner whose memory holds enough for a full memory batch, so that every step has the final shape."""
        learner = Learner(
            {"name": "er", "network": {"width": self.width}, "memory_batch": MEMORY_BATCH},
            None if self.branch == "none" else self.branch,
            num_classes=NUM_CLASSES,
            memory_size=MEMORY_SIZE,
            engine={"device": self.device, "precision": self.precision, "capture": self.capture},
        )
        x, y = (torch.cat(parts) for parts in zip(*_batches(7), strict=True))
        learner.learn(x, y)
        return learner


@dataclass(frozen=True)
class Measured:
    """One row of the table."""

    learner: str
    steps: str  # eager or captured
    ms_per_step: float
    ratio: float  # to ER without a branch, launched the same way
    images_per_second: float
    peak_bytes: int


def run_bench(width: int, steps: int, device: str, precision: str, as_json: bool, console: Console) -> None:
    """ER alone and with each branch: median milliseconds, peak memory, and the ratio to ER."""
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    captures = ("auto", "off") if cuda else ("off",)
    subjects = [Subject(branch, capture, width, device, precision) for capture in captures for branch in BRANCHES]
    learners = {subject: subject.learner() for subject in subjects}
    for learner in learners.values():
        _seconds_per_step(learner, WARM_UP)
    turn = 20 if cuda else 1
    times: dict[Subject, list[float]] = {subject: [] for subject in subjects}
    for _ in range(max(1, steps // turn)):
        for subject, learner in learners.items():
            times[subject].append(_seconds_per_step(learner, turn))
    rows = [_measured(subject, times) for subject in subjects]
    packed = {branch: _packed(Subject(branch, "auto", width, device, precision)) for branch in BRANCHES if cuda}
    engine = next(iter(learners.values())).engine
    facts = describe(engine.device) | {"width": width, "steps": steps, "bfloat16": engine.bfloat16}
    if as_json:
        print(json.dumps({"environment": facts, "rows": [asdict(row) for row in rows], "packed": packed}, indent=1))
    else:
        console.print(_table(rows, facts))
        for branch, by_count in packed.items():
            figures = ", ".join(f"{count}: {ms:.2f}" for count, ms in by_count.items())
            console.print(
                f"{_name(branch)} captured, ms per step and run, by the number of runs side by side: {figures}"
            )


def _measured(subject: Subject, times: dict[Subject, list[float]]) -> Measured:
    seconds = median(times[subject])
    base = Subject("none", subject.capture, subject.width, subject.device, subject.precision)
    return Measured(
        _name(subject.branch),
        "eager" if subject.capture == "off" else "captured",
        1000 * seconds,
        seconds / median(times[base]),
        (MEMORY_BATCH + STREAM_BATCH) / seconds,
        _peak_bytes(subject),
    )


def _table(rows: list[Measured], facts: dict[str, object]) -> Table:
    images = f"{STREAM_BATCH} stream + {MEMORY_BATCH} memory images, 32x32"
    table = Table(title=f"one step: {images}, width {facts['width']}, {facts['device']}")
    for column in ("learner", "steps", "ms/step", "to ER", "images/s", "peak memory"):
        table.add_column(column, justify="left" if column in ("learner", "steps") else "right")
    for row in rows:
        table.add_row(
            row.learner,
            row.steps,
            f"{row.ms_per_step:.2f}",
            f"{row.ratio:.3f}",
            f"{row.images_per_second:.0f}",
            f"{row.peak_bytes / 2**20:.0f} MiB",
        )
    return table


def _name(branch: str) -> str:
    return "er" if branch == "none" else f"er+{branch}"


def _packed(subject: Subject, steps: int = 100) -> dict[int, float]:
    """Milliseconds per step and run of 1, 2, 4 and 8 captured learners that take turns, each on its own stream."""
    figures = {}
    for count in (1, 2, 4, 8):
        learners = [subject.learner() for _ in range(count)]
        streams = [torch.cuda.Stream(learner.engine.device) for learner in learners]
        seconds = 0.0
        for timed in (False, True):
            batches = _batches(steps if timed else WARM_UP)
            _wait(learners[0])
            begin = time.perf_counter()
            for x, y in batches:
                for learner, stream in zip(learners, streams, strict=True):
                    with torch.cuda.stream(stream):
                        learner.learn(x, y)
            _wait(learners[0])
            seconds = time.perf_counter() - begin
        figures[count] = 1000 * seconds / steps / count
    return figures


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randint(0, 256, (STREAM_BATCH, 3, 32, 32), generator=generator, dtype=torch.uint8),
            torch.randint(0, NUM_CLASSES, (STREAM_BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def _seconds_per_step(learner: Learner, steps: int) -> float:
    batches = _batches(steps)
    _wait(learner)
    begin = time.perf_counter()
    for x, y in batches:
        learner.learn(x, y)
    _wait(learner)
    return (time.perf_counter() - begin) / steps


def _wait(learner: Learner) -> None:
    if learner.engine.device.type == "cuda":
        torch.cuda.synchronize(learner.engine.device)


def _peak_bytes(subject: Subject) -> int:
    """Peak memory of a few steps in a fresh process: of the device on CUDA, of the process on a CPU."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_in_this_process, (subject,))


def _peak_in_this_process(subject: Subject) -> int:
    learner = subject.learner()
    _seconds_per_step(learner, WARM_UP)
    if learner.engine.device.type == "cuda":
        return torch.cuda.max_memory_allocated(learner.engine.device)
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would answer with the parent's peak if that was higher
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
