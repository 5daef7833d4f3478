"""The order in which a learner sees a data set, decided before the first step and fixed as a plan.

A plan holds sample ids, never pixels: it can be hashed, saved, moved to another machine and entered at any batch. How a
learner is told of task boundaries, and what it does with them, is not decided here.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from s6mod.config import Config
from s6mod.data.arrays import as_labels
from s6mod.engine.random import generator
from s6mod.errors import ConfigError, DataError, InputError

FORMAT = "s6mod stream plan 1"


class StreamConfig(Config):
    """How a data set becomes a stream."""

    kind: Literal["class-incremental"] = Field(
        "class-incremental", description="class-incremental: disjoint classes, task after task, each sample once"
    )
    tasks: int = Field(5, ge=1, description="number of tasks T")
    batch_size: int = Field(10, ge=1, description="samples in a stream batch B; the last one of a task may be smaller")
    class_order: Literal["seeded", "fixed"] | tuple[int, ...] = Field(
        "seeded", description="seeded: shuffled by the run's seed; fixed: 0..C-1; or all class ids in the wanted order"
    )
    limit: int | None = Field(
        None, ge=1, description="samples in the whole stream at the most, shared evenly by its tasks; null: all"
    )


class StreamBatch(NamedTuple):
    """One step of a stream."""

    position: int
    ids: Tensor  # (B,) int64 rows of the training split
    task: int
    is_last_of_task: bool


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Which samples come in which batch of which task."""

    ids: Tensor  # (N,) int64, rows of the training split in the order of the stream
    offsets: Tensor  # (S + 1,) int64: batch s is ids[offsets[s] : offsets[s + 1]]
    batch_tasks: Tensor  # (S,) int64: the task of each batch, ascending
    task_classes: tuple[tuple[int, ...], ...]  # of each task
    class_order: tuple[int, ...]

    def __post_init__(self) -> None:
        tensors = (self.ids, self.offsets, self.batch_tasks)
        sound = (
            all(t.ndim == 1 and t.dtype == torch.int64 and t.device.type == "cpu" and len(t) > 0 for t in tensors)
            and len(self.offsets) == len(self.batch_tasks) + 1
            and int(self.offsets[0]) == 0
            and int(self.offsets[-1]) == len(self.ids)
            and bool((self.offsets.diff() > 0).all())
            and bool((self.batch_tasks.diff() >= 0).all())
            and 0 <= int(self.batch_tasks[0]) <= int(self.batch_tasks[-1]) < len(self.task_classes)
            and int(self.ids.min()) >= 0
        )
        if not sound:
            raise DataError(
                "expected sample ids, batch offsets and tasks that fit together, got a stream plan whose parts "
                "disagree; make the plan with make_plan"
            )

    def __len__(self) -> int:
        """Number of batches S."""
        return len(self.batch_tasks)

    def __getitem__(self, position: int) -> StreamBatch:
        """The batch at ``position``, 0 <= position < len(plan)."""
        if not 0 <= position < len(self):
            raise IndexError(f"expected a position in 0..{len(self) - 1}, got {position}")
        start, stop = self.offsets[position], self.offsets[position + 1]
        task = int(self.batch_tasks[position])
        is_last = position + 1 == len(self) or int(self.batch_tasks[position + 1]) != task
        return StreamBatch(position, self.ids[start:stop], task, is_last)

    def batches(self, start: int = 0) -> Iterator[StreamBatch]:
        """The batches from position ``start`` on: a resumed run goes on at its cursor, 0..len(plan)."""
        if not 0 <= start <= len(self):
            raise InputError(
                f"expected a start in 0..{len(self)}, got {start}; use the plan that the run was started with"
            )
        return (self[position] for position in range(start, len(self)))

    @property
    def num_tasks(self) -> int:
        """Number of tasks T."""
        return len(self.task_classes)

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits that name the content: equal plans have equal hashes on every machine."""
        sha = hashlib.sha256(json.dumps([FORMAT, self.task_classes, self.class_order]).encode())
        for tensor in (self.ids, self.offsets, self.batch_tasks):
            sha.update(len(tensor).to_bytes(8, "little"))
            sha.update(tensor.numpy().astype("<i8").tobytes())
        return sha.hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Write the plan as one safetensors file with JSON metadata; the file appears whole or not at all."""
        tensors = {"ids": self.ids, "offsets": self.offsets, "batch_tasks": self.batch_tasks}
        lists = {"task_classes": self.task_classes, "class_order": self.class_order}
        metadata = {"format": FORMAT, "hash": self.hash} | {name: json.dumps(value) for name, value in lists.items()}
        aside = path.with_name(path.name + ".part")
        aside.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))
        os.replace(aside, path)

    @classmethod
    def load(cls, path: Path) -> "StreamPlan":
        """Read a plan that ``save`` wrote, and check that it is what was saved."""
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in ("ids", "offsets", "batch_tasks")}
            order = tuple(json.loads(metadata["class_order"]))
            tasks = tuple(tuple(classes) for classes in json.loads(metadata["task_classes"]))
            plan = cls(**tensors, task_classes=tasks, class_order=order)
            whole = metadata["format"] == FORMAT and metadata["hash"] == plan.hash
        except OSError as error:
            raise DataError(f"expected a stream plan in {path}, got: {error}; check the path") from None
        except (SafetensorError, DataError, KeyError, ValueError, TypeError):
            whole = False
        if not whole:
            raise DataError(
                f"expected a whole {FORMAT!r} in {path}, got another or a damaged file; save the plan again"
            )
        return plan


def make_plan(labels: Tensor, num_classes: int, config: StreamConfig, seed: int) -> StreamPlan:
    """The plan of a run: ``labels`` (N,) of the training split, cut into tasks, shuffled inside each, in batches.

    Classes are dealt to the tasks in their order, as evenly as possible (the first tasks take one more if there is a
    remainder). Samples are shuffled inside their task by the random stream "stream" of ``seed``; no batch crosses the
    end of a task. A ``limit`` keeps the first samples of each task.
    """
    labels = as_labels(labels, num_classes)
    if config.tasks > num_classes:
        raise ConfigError(f"expected at most {num_classes} tasks, one class each, got {config.tasks}; lower tasks")
    if config.limit is not None and config.limit < config.tasks:
        raise ConfigError(
            f"expected a limit of at least {config.tasks} samples, one for each task, got {config.limit}; raise limit"
        )
    order = _order_classes(num_classes, config.class_order, seed)
    task_classes = tuple(tuple(part.tolist()) for part in np.array_split(order, config.tasks))
    rng = generator(seed, "stream")
    task_ids = []
    for task, classes in enumerate(task_classes):
        own = torch.isin(labels, torch.tensor(classes)).nonzero().flatten()
        if len(own) == 0:
            raise DataError(f"expected samples for task {task}, got none of its classes {classes}; use fewer tasks")
        shuffled = own[torch.randperm(len(own), generator=rng)]
        task_ids.append(shuffled[: _share(config.limit, config.tasks, task)])
    return _in_batches(task_ids, config.batch_size, task_classes, tuple(order.tolist()))


def _in_batches(
    task_ids: list[Tensor], batch_size: int, task_classes: tuple[tuple[int, ...], ...], class_order: tuple[int, ...]
) -> StreamPlan:
    """The plan that visits each task's samples in full batches and one smaller last one."""
    sizes, tasks = [], []
    for task, ids in enumerate(task_ids):
        full, rest = divmod(len(ids), batch_size)
        of_task = [batch_size] * full + [rest] * (rest > 0)
        sizes += of_task
        tasks += [task] * len(of_task)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return StreamPlan(torch.cat(task_ids), offsets, torch.tensor(tasks), task_classes, class_order)


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


def _share(limit: int | None, tasks: int, task: int) -> int | None:
    """How many of ``limit`` samples one task may have; the first tasks take the remainder."""
    return None if limit is None else limit // tasks + (task < limit % tasks)
