"""A stream plan: which samples come in which batch of which task.

A plan holds sample ids, never pixels: it can be hashed, saved, moved to another machine and entered at any batch.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from s6mod.errors import DataError, InputError
from s6mod.files import parse_json, plain_file, write_whole

FORMAT = "s6mod stream plan 1"


class StreamBatch(NamedTuple):
    """One step of a stream."""

    position: int
    ids: Tensor  # (B,) int64 rows of the training split
    task: int
    is_last_of_task: bool  # the time to evaluate; whether the learner is told as well, ``StreamPlan.boundaries`` says


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Which samples come in which batch of which task.

    Each class has one home task, whatever the kind of the stream; ``task_classes`` lists them. What a learner is tested
    on follows from it: the test images of task j are those of the classes whose home it is, and a[i, j] of the accuracy
    matrix is the accuracy on them at the end of task i. In a class-incremental stream all training samples of a class
    come in its home task. In others the matrix keeps its definition, but reads differently: samples of task j may come
    before it is first evaluated and after, so N-Acc may count what was learned earlier, and AF what was learned again.
    """

    ids: Tensor  # (N,) int64, rows of the training split in the order of the stream
    offsets: Tensor  # (S + 1,) int64: batch s is ids[offsets[s] : offsets[s + 1]]
    batch_tasks: Tensor  # (S,) int64: the task of each batch, ascending
    task_classes: tuple[tuple[int, ...], ...]  # those at home in each task
    class_order: tuple[int, ...]
    boundaries: bool = True  # whether the learner is told that a task ends

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

    def first(self, limit: int) -> "StreamPlan":
        """The plan of the first ``limit`` samples: it ends there, if need be within a batch and a task."""
        if limit >= len(self.ids):
            return self
        batches = int(torch.searchsorted(self.offsets, limit))  # those that begin before the limit
        tasks = self.batch_tasks[:batches]
        return replace(
            self,
            ids=self.ids[:limit],
            offsets=self.offsets[: batches + 1].clamp(max=limit),
            batch_tasks=tasks,
            task_classes=self.task_classes[: int(tasks[-1]) + 1],
        )

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits that name the content: equal plans have equal hashes on every machine."""
        content = [FORMAT, self.task_classes, self.class_order] + [False] * (not self.boundaries)
        sha = hashlib.sha256(json.dumps(content).encode())
        for tensor in (self.ids, self.offsets, self.batch_tasks):
            sha.update(len(tensor).to_bytes(8, "little"))
            sha.update(tensor.numpy().astype("<i8").tobytes())
        return sha.hexdigest()[:12]

    def save(self, path: Path) -> None:
        """Write the plan as one safetensors file with JSON metadata; the file appears whole or not at all."""
        tensors = {"ids": self.ids, "offsets": self.offsets, "batch_tasks": self.batch_tasks}
        values = {"task_classes": self.task_classes, "class_order": self.class_order, "boundaries": self.boundaries}
        metadata = {"format": FORMAT, "hash": self.hash} | {name: json.dumps(value) for name, value in values.items()}
        write_whole(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))

    @classmethod
    def load(cls, path: Path) -> "StreamPlan":
        """Read a plan that ``save`` wrote, and check that it is what was saved."""
        try:
            with safe_open(plain_file(path), "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in ("ids", "offsets", "batch_tasks")}
            order = tuple(parse_json(metadata["class_order"]))
            tasks = tuple(tuple(classes) for classes in parse_json(metadata["task_classes"]))
            boundaries = bool(parse_json(metadata.get("boundaries", "true")))  # not in files of earlier versions
            plan = cls(**tensors, task_classes=tasks, class_order=order, boundaries=boundaries)
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
