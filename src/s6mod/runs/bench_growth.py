"""What growth costs: milliseconds of a step and of a prediction by classes, memory and image size.

One thing grows at a time, from the same small start. All learners are timed in turns within one run, on one thread, and
on a CPU by the time of the processor: so ratios hold on a machine that has other things to do.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Any, Literal

import torch
from rich.table import Table
from torch import Tensor

from s6mod.config import merge
from s6mod.learner import Learner
from s6mod.runs.bench import STREAM_BATCH, WARM_UP, Bench, wait

Axis = Literal["classes", "memory", "image"]
AXES: dict[Axis, tuple[int, ...]] = {  # the first of each is the start of all others
    "classes": (10, 100, 1000),
    "memory": (1000, 10_000, 50_000),
    "image": (32, 16, 64),
}
TURNS = 7  # of each learner
FILLED = 1000  # images that the memory takes at once


@dataclass(frozen=True)
class Point:
    """A learner at one size."""

    learner: str  # method, or method+branch
    classes: int
    memory: int
    image: int  # side in pixels


@dataclass(frozen=True)
class Grown:
    """One row of the table; ratios are to the same learner at the start."""

    axis: Axis
    value: int
    learner: str
    ms_per_step: float
    step_ratio: float
    ms_per_prediction: float  # of one image
    prediction_ratio: float


def run_growth(bench: Bench) -> None:
    """The table of growth for each method and branch."""
    known = {name if branch == "none" else f"{name}+{branch}": v for (name, branch), v in bench.known.items()}
    learners = {}
    with one_thread():
        for point in points(list(known)):
            learners[point] = _ready(point, known[point.learner], bench)
        rows = measure(learners, bench.seconds)
        facts = bench.facts(next(iter(learners.values())).engine.device)
    if bench.as_json:
        print(json.dumps({"environment": facts, "growth": [asdict(row) for row in rows]}, indent=1))
        return
    for learner in known:
        bench.console.print(_table(learner, [row for row in rows if row.learner == learner], facts))
    bench.console.print(
        "medians of turns on one thread, a prediction of one image; a simplex is as wide as its classes"
    )


def points(learners: list[str]) -> list[Point]:
    """Every learner at the start and at each further value of each axis."""
    grown = [_at(learner, **{axis: value}) for axis in AXES for value in AXES[axis][1:] for learner in learners]
    return [_at(learner) for learner in learners] + grown


def _at(learner: str, **grown: int) -> Point:
    """The learner at the start, but for what has grown."""
    return Point(learner, **{axis: grown.get(axis, values[0]) for axis, values in AXES.items()})


def measure(learners: dict[Point, Learner], seconds: float) -> list[Grown]:
    """Steps and predictions of all learners, in turns."""
    verbs = {"step": _seconds_per_step, "prediction": _seconds_per_prediction}
    times: dict[tuple[str, Point], list[float]] = {}
    for turn in range(1 + TURNS):  # the first tells how many fit into a turn
        for point, learner in learners.items():
            for verb, timed in verbs.items():
                before = times.setdefault((verb, point), [])
                if turn == 0:
                    before.append(timed(learner, 2))
                else:
                    before.append(timed(learner, max(1, round(seconds / TURNS / len(verbs) / before[0]))))
    ms = {at: 1000 * median(found[1:]) for at, found in times.items()}
    rows = []
    names = list(dict.fromkeys(point.learner for point in learners))
    for axis, values in AXES.items():
        for value, name in product(values, names):
            point, start = _at(name, **{axis: value}), _at(name)
            step, prediction = (ms[verb, point] for verb in verbs)
            ratios = [ms[verb, point] / ms[verb, start] for verb in verbs]
            rows.append(Grown(axis, value, name, step, ratios[0], prediction, ratios[1]))
    return rows


def _ready(point: Point, values: dict[str, Any], bench: Bench) -> Learner:
    """A learner of this size with a full memory, warmed up."""
    branch = values["branch"]
    if branch is not None and branch.get("frame") == "simplex":  # which needs the width
        branch = merge(branch, {"d_inner": max(branch["d_inner"], point.classes)})
    learner = Learner(
        merge(values["method"], {"network": {"width": bench.width}}),
        branch,
        num_classes=point.classes,
        memory_size=point.memory,
        engine={"device": bench.device, "precision": bench.precision},
    )
    learner.build((3, point.image, point.image))
    on = learner.engine.device
    for start in range(0, point.memory, FILLED):
        x, y = _batch(learner, min(FILLED, point.memory - start), seed=start)
        slots = learner.memory.place(y, 0, learner.host_generator)
        kept = {name: value[: len(y)].clone() for name, value in learner.memory.values.items()}
        learner.memory.store(slots.to(on), x.to(on), y.to(on), kept)
    _seconds_per_step(learner, WARM_UP if on.type == "cuda" else 1)
    return learner


def _batch(learner: Learner, size: int, seed: int) -> tuple[Tensor, Tensor]:
    assert learner.image_shape is not None
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (size, *learner.image_shape), generator=random, dtype=torch.uint8)
    return images, torch.randint(0, learner.classes.capacity, (size,), generator=random)


def _seconds_per_step(learner: Learner, steps: int) -> float:
    batches = [_batch(learner, STREAM_BATCH, seed) for seed in range(steps)]
    return _seconds(learner, [partial(learner.learn, x, y) for x, y in batches])


def _seconds_per_prediction(learner: Learner, predictions: int) -> float:
    image, _ = _batch(learner, 1, seed=0)
    learner.predict(image)
    return _seconds(learner, [partial(learner.predict, image)] * predictions)


def _seconds(learner: Learner, calls: list[Callable[[], Any]]) -> float:
    clock = time.perf_counter if learner.engine.device.type == "cuda" else time.process_time
    wait(learner)
    begin = clock()
    for call in calls:
        call()
    wait(learner)
    return (clock() - begin) / len(calls)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one thread in each thread of ours."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _table(learner: str, rows: list[Grown], facts: dict[str, object]) -> Table:
    table = Table(title=f"{learner}: {STREAM_BATCH} stream images a step, width {facts['width']}, {facts['device']}")
    for column in ("what grows", "to", "ms/step", "ratio", "ms/prediction", "ratio"):
        table.add_column(column, justify="left" if column == "what grows" else "right", no_wrap=True)
    for row in rows:
        cells = [f"{row.value:,}", f"{row.ms_per_step:.1f}", f"{row.step_ratio:.2f}"]
        cells += [f"{row.ms_per_prediction:.2f}", f"{row.prediction_ratio:.2f}"]
        table.add_row(row.axis if row.value == AXES[row.axis][0] else "", *cells)
    return table
