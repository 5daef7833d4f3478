"""Speed and memory of a training step, measured in one run so that the ratios can be trusted.

Learners are timed in turns, step by step, so that whatever else the machine does hits all of them alike.
"""

import json
import multiprocessing
import resource
import sys
import time
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from s6mod.engine.environment import describe
from s6mod.learner import Learner

MEMORY_SIZE = 2000
NUM_CLASSES = 100
STREAM_BATCH = 10
WARM_UP = 3
BRANCHES = (None, "s6mod", "confidence")


def run_bench(width: int, steps: int, device: str, precision: str, as_json: bool, console: Console) -> None:
    """ER alone and with each branch: median milliseconds, peak memory, and the ratio to ER."""
    learners = {_name(branch): _ready_learner(branch, width, device, precision) for branch in BRANCHES}
    batches = _batches(steps + WARM_UP)
    times: dict[str, list[float]] = {name: [] for name in learners}
    for x, y in batches:
        for name, learner in learners.items():
            times[name].append(_timed(learner, x, y))
    base = median(times["er"][WARM_UP:])
    rows: list[dict[str, Any]] = [
        {
            "learner": name,
            "ms_per_step": 1000 * median(times[name][WARM_UP:]),
            "ratio": median(times[name][WARM_UP:]) / base,
            "images_per_second": (learners[name].config.method.memory_batch + STREAM_BATCH)
            / median(times[name][WARM_UP:]),
            "peak_bytes": _peak_bytes(branch, width, device, precision),
        }
        for name, branch in ((_name(branch), branch) for branch in BRANCHES)
    ]
    facts = describe(learners["er"].engine.device) | {
        "width": width,
        "steps": steps,
        "bfloat16": learners["er"].engine.bfloat16,
    }
    if as_json:
        print(json.dumps({"environment": facts, "steps": rows}, indent=1))
        return
    table = Table(title=f"one step: {STREAM_BATCH} stream + 64 memory images, 32x32, width {width}, {facts['device']}")
    for column in ("learner", "ms/step", "to ER", "images/s", "peak memory"):
        table.add_column(column, justify="left" if column == "learner" else "right")
    for row in rows:
        table.add_row(
            str(row["learner"]),
            f"{row['ms_per_step']:.2f}",
            f"{row['ratio']:.3f}",
            f"{row['images_per_second']:.0f}",
            f"{row['peak_bytes'] / 2**20:.0f} MiB",
        )
    console.print(table)


def _name(branch: str | None) -> str:
    return "er" if branch is None else f"er+{branch}"


def _batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randint(0, 256, (STREAM_BATCH, 3, 32, 32), generator=generator, dtype=torch.uint8),
            torch.randint(0, NUM_CLASSES, (STREAM_BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def _ready_learner(branch: str | None, width: int, device: str, precision: str) -> Learner:
    """A learner whose memory holds enough for a full memory batch, so that every step has the final shape."""
    learner = Learner(
        {"name": "er", "network": {"width": width}, "memory_batch": 64},
        branch,
        num_classes=NUM_CLASSES,
        memory_size=MEMORY_SIZE,
        engine={"device": device, "precision": precision},
    )
    x, y = (torch.cat(parts) for parts in zip(*_batches(7), strict=True))
    learner.learn(x, y)
    return learner


def _timed(learner: Learner, x: torch.Tensor, y: torch.Tensor) -> float:
    begin = time.perf_counter()
    learner.learn(x, y)
    if learner.engine.device.type == "cuda":
        torch.cuda.synchronize(learner.engine.device)
    return time.perf_counter() - begin


def _peak_bytes(branch: str | None, width: int, device: str, precision: str) -> int:
    """Peak memory of a few steps: of the device on CUDA, of a fresh process on a CPU."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return int(pool.apply(_peak_in_this_process, (branch, width, device, precision)))


def _peak_in_this_process(branch: str | None, width: int, device: str, precision: str) -> int:
    learner: Any = _ready_learner(branch, width, device, precision)
    for x, y in _batches(2):
        learner.learn(x, y)
    if learner.engine.device.type == "cuda":
        return torch.cuda.max_memory_allocated(learner.engine.device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
