"""Speed and memory of a training step of every method, measured in one run so that the ratios can be trusted.

The learners of one method (with and without the branch, launched kernel by kernel and captured) are timed in turns, a
few steps each, so that whatever else the machine does hits all of them alike. All are in the steady state of the
published experiments: CIFAR-100 sizes, second task, a full memory batch.
"""

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from s6mod.config import merge
from s6mod.errors import ConfigError
from s6mod.learner import Learner
from s6mod.methods import methods
from s6mod.runs.environment import describe

IMAGE_SHAPE = (3, 32, 32)
NUM_CLASSES = 100
TASK_CLASSES = 10
MEMORY_SIZE = 2000
STREAM_BATCH = 10
WARM_UP = 12  # steps: enough for every batch to have its final size and for a captured engine to have captured
TURNS = 5  # of each learner
PACKED = (1, 2, 4, 8)
PARTS = ("method", "branch", "teacher", "average")  # of a configuration, that tell learners apart

REFERENCE_MS = {
    "er": 19.0,
    "er+s6mod": 134.0,
    "ocm": 205.8,
    "onpro": 216.4,
    "ocm-ccldc": 439.9,
    "onpro-ccldc": 431.0,
}
"""Milliseconds per step of the public reference implementations, alone on one H200 (PyTorch 2.11, same sizes)."""


@dataclass(frozen=True)
class Bench:
    """What is measured, on what, for how long, and how it is shown."""

    methods: list[str]
    branches: list[str]
    values: Callable[[str, str], dict[str, Any]]  # the whole configuration of a method and a branch
    width: int  # of the network
    seconds: float  # for each learner, warm-up apart
    device: str
    precision: str
    as_json: bool
    console: Console

    @cached_property
    def known(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The values of each method and branch; what is unknown, is refused."""
        return {(name, branch): self.values(name, branch) for name in self.methods for branch in self.branches}

    def facts(self, device: torch.device) -> dict[str, Any]:
        """Where and how it was measured."""
        return describe(device) | {"width": self.width, "precision": self.precision}

    def contender(self, method: str, branch: str, capture: str) -> "Contender":
        """One of them as a learner to be measured."""
        return Contender(method, branch, capture, self.width, self.device, self.precision, self.known[method, branch])


@dataclass(frozen=True)
class Contender:
    """A learner to be measured."""

    method: str
    branch: str  # "none", a branch or a teacher; with changes, as in s6mod/view=shared or none/average=0.99
    capture: str
    width: int
    device: str
    precision: str
    values: dict[str, Any] = field(compare=False)  # plain values of the method, and of the branch if it has one

    @property
    def name(self) -> str:
        """Method and branch, with changes."""
        return f"{self.method}+{self.branch}".replace("+none", "")

    def learner(self) -> Learner:
        """A learner in its second task, half its memory filled with images of the first."""
        learner = Learner(
            merge(self.values["method"], {"network": {"width": self.width}}),
            self.values["branch"],
            num_classes=NUM_CLASSES,
            memory_size=MEMORY_SIZE,
            engine={"device": self.device, "precision": self.precision, "capture": self.capture},
            teacher=self.values["teacher"],
            average=self.values["average"],
        )
        learner.build(IMAGE_SHAPE)
        for x, y in stream_batches(2, task=0, size=MEMORY_SIZE // 4):
            slots = learner.memory.place(y, 0, learner.host_generator)
            device = learner.engine.device
            values = {name: value[: len(y)].clone() for name, value in learner.memory.values.items()}
            learner.memory.store(slots.to(device), x.to(device), y.to(device), values)
        for x, y in stream_batches(2, task=0):
            learner.learn(x, y)
        learner.end_task()
        return learner


@dataclass(frozen=True)
class Measured:
    """One row of the table."""

    learner: str
    steps: str  # eager or captured
    ms_per_step: float
    ratio: float  # to the same method without a branch, launched the same way
    reference: float | None  # milliseconds of the reference implementation
    images_per_second: float  # through a network, views and teachers included
    share_of_peak: float | None  # arithmetic of the step by its time, over that of a large bfloat16 matrix product
    peak_bytes: int


def run_bench(bench: Bench) -> None:
    """Milliseconds, images per second, share of the peak and memory of each learner; packed runs of the first method.

    Where a branch comes to the same as another, one of them is measured. A method that refuses branches and teachers is
    measured alone.
    """
    known, branches = bench.known, bench.branches
    if "none" not in branches:
        raise ConfigError("expected 'none' among the branches, which the others are compared with; add it")
    cuda = bench.device.startswith("cuda") or (bench.device == "auto" and torch.cuda.is_available())
    if cuda:
        torch.set_num_threads(1)  # as in runs on a GPU
    peak = _peak_flops() if cuda else None
    captures = ("off", "auto") if cuda else ("off",)
    rows: list[Measured] = []

    def contenders(name: str, capture: str) -> list[Contender]:
        parts = {branch: [known[name, branch][part] for part in PARTS] for branch in branches}
        different = {repr(parts[branch]): branch for branch in reversed(branches)}.values()
        joins = [branch for branch in branches if methods[name].has_logits or branch.split("/")[0] == "none"]
        chosen = [branch for branch in joins if branch in different]
        return [bench.contender(name, each, capture) for each in chosen]

    for name in bench.methods:
        rows += measure([each for capture in captures for each in contenders(name, capture)], bench.seconds, peak)
    first = contenders(bench.methods[0], "auto") if cuda else []
    packed = {contender.name: _packed(contender, bench.seconds) for contender in first}
    facts = bench.facts(torch.device("cuda" if cuda else "cpu"))
    facts["peak_tflops"] = None if peak is None else peak / 1e12
    if bench.as_json:
        print(json.dumps({"environment": facts, "rows": [asdict(row) for row in rows], "packed": packed}, indent=1))
        return
    bench.console.print(_table(rows, facts))
    for learner, by_count in packed.items():
        figures = ", ".join(f"{count}: {ms:.2f}" for count, ms in by_count.items())
        bench.console.print(f"{learner} captured, ms per step and run, by the number of runs side by side: {figures}")


def measure(contenders: list[Contender], seconds: float, peak: float | None) -> list[Measured]:
    """The learners of one method, in turns that together take about ``seconds`` for each."""
    learners, bytes_, turn = {}, {}, {}
    for contender in contenders:
        learners[contender], bytes_[contender] = _ready(contender)
        turn[contender] = max(1, round(seconds / TURNS / seconds_per_step(learners[contender], 2)))
    times: dict[Contender, list[float]] = {contender: [] for contender in contenders}
    for _ in range(TURNS):
        for contender, learner in learners.items():
            times[contender].append(seconds_per_step(learner, turn[contender]))
    rows = []
    for contender, learner in learners.items():
        per_step = median(times[contender])
        twin = replace(contender, capture="off")  # kernels can be counted only where they are launched one by one
        images, flops = _work(learners.get(twin, learner))
        rows.append(
            Measured(
                contender.name,
                "eager" if contender.capture == "off" else "captured",
                1000 * per_step,
                per_step / median(times[replace(contender, branch="none")]),
                None if peak is None else REFERENCE_MS.get(contender.name),  # measured on a GPU, as the peak is
                images / per_step,
                None if peak is None else flops / per_step / peak,
                bytes_[contender],
            )
        )
    return rows


def _ready(contender: Contender) -> tuple[Learner, int]:
    """A learner that is warmed up, and the most memory that it took: of the device, or of a process of its own."""
    if not (contender.device.startswith("cuda") or (contender.device == "auto" and torch.cuda.is_available())):
        learner = contender.learner()
        seconds_per_step(learner, 2)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return learner, pool.apply(_peak_in_this_process, (contender,))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    learner = contender.learner()
    seconds_per_step(learner, WARM_UP)
    return learner, torch.cuda.max_memory_allocated() - before


def _peak_in_this_process(contender: Contender) -> int:
    seconds_per_step(contender.learner(), 2)
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would answer with the parent's peak if that was higher
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _work(learner: Learner) -> tuple[int, int]:
    """Images through a network and floating-point operations of convolutions and matrix products, in one step."""
    images = 0

    def count(_: object, args: tuple[Tensor, ...]) -> None:
        nonlocal images
        images += len(args[0])

    networks = [part for peer in learner.peers for part in (peer.network, peer.teacher) if part is not None]
    networks += [] if learner.teaching is None else learner.teaching.modules
    hooks = [network.register_forward_pre_hook(count) for network in networks]
    with FlopCounterMode(display=False) as counter:
        seconds_per_step(learner, 1)
    for hook in hooks:
        hook.remove()
    return images, counter.get_total_flops()


def _peak_flops(size: int = 8192, repeats: int = 20) -> float:
    """Operations per second of a large bfloat16 matrix product on this device."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for timed in (False, True):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats if timed else 3):
            a @ b
        torch.cuda.synchronize()
    return float(repeats * 2 * size**3 / (time.perf_counter() - begin))


def _packed(contender: Contender, seconds: float) -> dict[int, float]:
    """Milliseconds per step and run of several captured learners that take turns, each on a CUDA stream of its own."""
    figures = {}
    for count in PACKED:
        learners = [contender.learner() for _ in range(count)]
        steps = max(1, round(seconds / count / [seconds_per_step(learner, WARM_UP) for learner in learners][-1]))
        streams = [torch.cuda.Stream() for _ in learners]
        batches = list(stream_batches(steps))
        begin = time.perf_counter()
        for x, y in batches:
            for learner, stream in zip(learners, streams, strict=True):
                with torch.cuda.stream(stream):
                    learner.learn(x, y)
        torch.cuda.synchronize()
        figures[count] = 1000 * (time.perf_counter() - begin) / steps / count
    return figures


def stream_batches(count: int, task: int = 1, size: int = STREAM_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a task, images of noise with labels of that task."""
    random = torch.Generator().manual_seed(task)
    for _ in range(count):
        images = torch.randint(0, 256, (size, *IMAGE_SHAPE), generator=random, dtype=torch.uint8)
        yield images, task * TASK_CLASSES + torch.randint(0, TASK_CLASSES, (size,), generator=random)


def seconds_per_step(learner: Learner, steps: int) -> float:
    """Wall clock of ``steps`` steps of the second task, divided by their number."""
    batches = list(stream_batches(steps))
    wait(learner)
    begin = time.perf_counter()
    for x, y in batches:
        learner.learn(x, y)
    wait(learner)
    return (time.perf_counter() - begin) / steps


def wait(learner: Learner) -> None:
    """Until its device has done what it was given."""
    if learner.engine.device.type == "cuda":
        torch.cuda.synchronize(learner.engine.device)


def _table(rows: list[Measured], facts: dict[str, object]) -> Table:
    table = Table(title=f"one step: {STREAM_BATCH} stream images, 32x32, width {facts['width']}, {facts['device']}")
    cuda = facts["peak_tflops"] is not None
    columns = ["learner", "steps", "ms/step", "to base", "images/s", "MiB", *["reference", "of peak"] * cuda]
    for column in columns:
        table.add_column(
            column, justify="left" if column in ("learner", "steps") else "right", no_wrap=column != "learner"
        )
    for row in rows:
        cells = [row.learner, row.steps, f"{row.ms_per_step:.2f}", f"{row.ratio:.3f}"]
        cells += [f"{row.images_per_second:.0f}", f"{row.peak_bytes / 2**20:.0f}"]
        reference = "-" if row.reference is None else f"{row.reference:.1f} ms"
        table.add_row(*cells, *[reference, f"{100 * (row.share_of_peak or 0):.1f} %"] * cuda)
    table.caption = "ms of a step: median of turns; MiB: most memory, of the device or of the process"
    return table
