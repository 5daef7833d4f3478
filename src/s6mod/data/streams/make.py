"""From a configuration to a plan.

Classes are dealt to tasks, samples are kept or left out, arranged by the kind of the stream, and cut into batches.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from s6mod.data.arrays import as_labels
from s6mod.data.streams import kinds
from s6mod.data.streams.config import StreamConfig
from s6mod.data.streams.kinds import Samples
from s6mod.data.streams.plan import StreamPlan
from s6mod.errors import ConfigError, DataError
from s6mod.random import generator

TaskClasses = tuple[tuple[int, ...], ...]


def make_plan(labels: Tensor, num_classes: int, config: StreamConfig, seed: int) -> StreamPlan:
    """The plan of a run: ``labels`` (N,) of the training split, arranged in tasks and cut in batches.

    Classes are dealt to the tasks in their order, as evenly as possible (the first tasks take one more if there is a
    remainder), or as the configuration lists them. How often a sample comes: once, in a repeated stream ``repeats``
    times; with an ``imbalance`` some do not come at all. Samples are shuffled inside their task by the random stream
    "stream" of ``seed``; no batch crosses the end of a task, except where no boundary is shown: there a smaller batch
    would show it. ``samples_per_task`` and then ``limit`` shorten what all the rest has arranged.
    """
    labels = as_labels(labels, num_classes)
    task_classes = _deal(num_classes, config, seed)
    samples = _samples(labels, task_classes, config.imbalance, seed)
    parts = [part[: config.samples_per_task] for part in _arrange(samples, config, generator(seed, "stream"))]
    batches = _within_tasks if config.shows_boundaries else _across_tasks
    offsets, batch_tasks = batches([len(part) for part in parts], config.batch_size)
    plan = StreamPlan(
        torch.cat(parts),
        offsets,
        batch_tasks,
        task_classes,
        samples.class_order,
        boundaries=config.shows_boundaries,
    )
    return plan if config.limit is None else plan.first(config.limit)


def _arrange(samples: Samples, config: StreamConfig, rng: torch.Generator) -> list[Tensor]:
    """The ids of each task, in the order of the stream; an option is set if and only if it belongs to the kind."""
    if config.blur is not None:
        return kinds.blurry(samples, config.blur, rng)
    if config.return_probability is not None and config.repeats is not None:
        return kinds.repeated(samples, config.return_probability, config.repeats, rng)
    if config.spread is not None:
        return kinds.task_free(samples, config.spread, rng)
    return kinds.iid(samples, rng) if config.kind == "iid" else kinds.class_incremental(samples, rng)


def _deal(num_classes: int, config: StreamConfig, seed: int) -> TaskClasses:
    """The classes of each task."""
    if isinstance(config.tasks, int):
        if config.tasks > num_classes:
            raise ConfigError(f"expected at most {num_classes} tasks, one class each, got {config.tasks}; lower tasks")
        order = _order_classes(num_classes, config.class_order, seed)
        return tuple(tuple(part.tolist()) for part in np.array_split(order, config.tasks))
    unknown = [label for classes in config.tasks for label in classes if not 0 <= label < num_classes]
    if unknown:
        raise ConfigError(f"expected classes in 0..{num_classes - 1} in tasks, got {unknown[0]}; list known ones")
    return config.tasks


def _order_classes(num_classes: int, order: str | tuple[int, ...], seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Class ids (C,) in the order of the stream.

    "seeded" is one shuffle of 0..C-1 by NumPy's legacy generator, whose sequence is frozen: a seed gives the order that
    published results with that seed were made with.
    """
    ids = np.arange(num_classes, dtype=np.int64)
    if order == "seeded":
        if not 0 <= seed < 2**32:
            raise ConfigError(f"expected a seed in 0..{2**32 - 1} for a seeded class order, got {seed}; choose another")
        np.random.RandomState(seed).shuffle(ids)
    elif order != "fixed":
        if sorted(order) != ids.tolist():
            raise ConfigError(
                f"expected every class id of 0..{num_classes - 1} once in class_order, got {list(order)}; "
                "list each class exactly once"
            )
        ids = np.array(order, dtype=np.int64)
    return ids


def _samples(labels: Tensor, task_classes: TaskClasses, imbalance: float, seed: int) -> Samples:
    """The samples that take part, with their home tasks."""
    order = tuple(label for classes in task_classes for label in classes)
    counts = labels.bincount(minlength=max(order) + 1).tolist()
    home = torch.full((len(counts),), -1)  # of each class; -1: it does not come
    for task, classes in enumerate(task_classes):
        if not any(counts[label] for label in classes):
            raise DataError(f"expected samples for task {task}, got none of its classes {classes}; use fewer tasks")
        home[list(classes)] = task
    ids = (home[labels] >= 0).nonzero().flatten()
    if imbalance > 1:
        ids = ids[_long_tail(labels[ids], order, imbalance, seed)]
    return Samples(ids, labels[ids], home[labels[ids]], order, len(task_classes))


def _long_tail(labels: Tensor, classes: tuple[int, ...], ratio: float, seed: int) -> Tensor:
    """Which samples to keep (N,) bool: frequencies fall exponentially from the first class by rank to the last.

    The class of rank r out of C keeps the share ratio^(-r / (C - 1)) of its samples, rounded, but one at least. Ranks
    and samples are drawn from a random stream of their own, so that a ratio of 1 leaves the rest of the plan as it is.
    """
    rng = generator(seed, "stream imbalance")
    ranks = torch.randperm(len(classes), generator=rng).tolist()
    keep = torch.zeros(len(labels), dtype=torch.bool)
    positions = kinds.grouped(labels, max(classes) + 1)
    for label, rank in zip(classes, ranks, strict=True):
        own = positions[label]
        share = ratio ** (-rank / max(len(classes) - 1, 1))
        keep[own[torch.randperm(len(own), generator=rng)][: max(1, round(share * len(own)))]] = True
    return keep


def _within_tasks(sizes: list[int], batch_size: int) -> tuple[Tensor, Tensor]:
    """Batch offsets (S + 1,) and tasks (S,): each task in full batches and one smaller last one."""
    batches: list[int] = []
    tasks: list[int] = []
    for task, size in enumerate(sizes):
        full, rest = divmod(size, batch_size)
        of_task = [batch_size] * full + [rest] * (rest > 0)
        batches += of_task
        tasks += [task] * len(of_task)
    return torch.tensor([0, *batches]).cumsum(0), torch.tensor(tasks)


def _across_tasks(sizes: list[int], batch_size: int) -> tuple[Tensor, Tensor]:
    """The same with full batches throughout: a batch belongs to the task of its first sample."""
    ends = torch.tensor(sizes).cumsum(0)
    starts = torch.arange(0, int(ends[-1]), batch_size)
    tasks = torch.searchsorted(ends, starts, right=True)
    if len(tasks.unique()) < len(sizes):
        raise ConfigError(
            f"expected a batch of {batch_size} samples in each task, got a task of {min(sizes)}; "
            "lower batch_size or tasks"
        )
    return torch.cat([starts, ends[-1:]]), tasks
