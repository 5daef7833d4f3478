"""Replay memory: pixels on the device, bookkeeping and draws on the host.

The host knows label, task and number of every stored sample, so it can decide what to replay and what to overwrite
without asking the device. The device is only told rows: ``gather`` reads them, ``store`` writes them. The last row of
the device arrays is scratch: a sample that is not kept is written there, so that every write has the same shape. A
method may have values stored with each row, such as the logits of the step that stored it.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from s6mod.errors import InputError

Reservoir = Literal["sequential", "batched", "greedy"]


class ReplayMemory:
    """A reservoir of at most ``size`` images of one shape, with ``values`` of these shapes, by name, beside each."""

    def __init__(
        self,
        size: int,
        image_shape: tuple[int, int, int],
        reservoir: Reservoir,
        device: torch.device,
        values: dict[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.size = size
        self.reservoir = reservoir
        self.device = device
        self.images = torch.zeros(size + 1, *image_shape, dtype=torch.uint8, device=device)
        self.device_labels = torch.zeros(size + 1, dtype=torch.int64, device=device)
        shapes = (values or {}).items()
        self.values = {n: torch.zeros(size + 1, *shape, dtype=torch.float32, device=device) for n, shape in shapes}
        self._storing: dict[str, Tensor] = {}  # values of a batch while it is written
        self.labels = torch.full((size,), -1, dtype=torch.int64)  # host mirror; -1: empty
        self.tasks = torch.full((size,), -1, dtype=torch.int64)
        self.filled = 0
        self.seen = 0  # samples offered so far

    def widened(self, values: dict[str, tuple[int, ...]]) -> "ReplayMemory":
        """The same with values of larger shapes beside each row; -inf stands where a row has none."""
        memory = copy.copy(self)
        memory.values = {}
        for name, shape in values.items():
            held = self.values[name]
            memory.values[name] = held.new_full((self.size + 1, *shape), -torch.inf)
            memory.values[name][tuple(slice(size) for size in held.shape)] = held
        return memory

    def __len__(self) -> int:
        return self.filled

    @property
    def nbytes(self) -> int:
        """Bytes held, host and device together."""
        tensors = (self.images, self.device_labels, *self.values.values(), self.labels, self.tasks)
        return sum(t.numel() * t.element_size() for t in tensors)

    # --- decisions, on the host -------------------------------------------------------------------------------

    def sample(self, count: int, generator: torch.Generator, among: Tensor | None = None) -> Tensor:
        """``count`` rows uniformly without replacement (all rows, in order, if there are not more).

        ``among``: the rows to choose from; by default all filled ones.
        """
        rows = torch.arange(self.filled) if among is None else among
        if len(rows) <= count:
            return rows
        return rows[torch.randperm(len(rows), generator=generator)[:count]]

    def place(self, labels: Tensor, task: int, generator: torch.Generator) -> Tensor:
        """Decide where each sample of a batch goes, (B,) rows; ``size`` (the scratch row) means: not kept.

        ``sequential`` is the textbook reservoir, sample by sample: the one that arrives after n others draws
        j = floor(U (n + 1)) and replaces row j if j < size, so that every sample seen so far is kept with equal
        probability. ``batched`` draws all samples of a batch with the n that held before them. ``greedy`` balances
        classes. Where two samples of a batch want one row the later wins, and the earlier goes to scratch.
        """
        batch = len(labels)
        rows = self._balanced(labels, generator) if self.reservoir == "greedy" else self._drawn(batch, generator)
        overwritten = (rows[:, None] == rows[None, :]).triu(1).any(1)
        rows = torch.where(overwritten, self.size, rows)

        kept = rows < self.size
        self.labels[rows[kept]] = labels[kept]
        self.tasks[rows[kept]] = task
        self.seen += batch
        self.filled = min(self.seen, self.size)
        return rows

    def _drawn(self, batch: int, generator: torch.Generator) -> Tensor:
        arrival = self.seen + torch.arange(batch)  # samples seen before each
        fills = arrival < self.size
        before_batch = torch.full((batch,), max(self.seen, self.size))
        bound = arrival + 1 if self.reservoir == "sequential" else before_batch
        uniform = torch.rand(batch, generator=generator, dtype=torch.float64)
        rows = torch.where(fills, arrival, (uniform * bound).long())
        return torch.where(rows < self.size, rows, self.size)

    def _balanced(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Sample by sample: while there is room it is stored.

        Later it is if its class has fewer than size / classes samples, in place of any of the class that has most.
        """
        known, rows = self.labels.clone(), []
        for position, label in enumerate(labels.tolist()):
            row = self.seen + position
            if row >= self.size:
                counts = torch.bincount(known, minlength=label + 1)
                classes = (counts > 0).sum() + (counts[label] == 0)
                most = (known == counts.argmax()).nonzero().flatten()
                chosen = most[torch.randint(len(most), (), generator=generator)]
                row = int(chosen) if counts[label] * classes < self.size else self.size
            if row < self.size:
                known[row] = label
            rows.append(row)
        return torch.tensor(rows)

    @contextmanager
    def placing(self, images: Tensor, labels: Tensor, task: int, generator: torch.Generator) -> Iterator[Tensor]:
        """The rows that ``place`` decides, for a step that is to ``store`` the batch there.

        Whatever ends it (out of memory, an interrupt before the batch is stored or after), the host then believes what
        the device holds.
        """
        known, rows, whole = (self.labels, self.tasks, self.filled, self.seen), None, False
        try:
            # In copies: a memory of which this is ``widened`` shares the tensors, and may yet go on without the batch.
            self.labels, self.tasks = self.labels.clone(), self.tasks.clone()
            rows = self.place(labels, task, generator)
            yield rows
        except BaseException:
            try:
                if rows is not None and self.holds(rows, images):
                    self._write(rows, images, labels, self._storing)
                    whole = True
            finally:
                self._storing = {}
                if not whole:
                    self.labels, self.tasks, self.filled, self.seen = known
            raise

    # --- work, on the device ----------------------------------------------------------------------------------

    def gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Images (K, C, H, W) uint8 and labels (K,) of the given rows (a device tensor)."""
        return self.images[rows], self.device_labels[rows]

    def store(self, rows: Tensor, images: Tensor, labels: Tensor, values: dict[str, Tensor] | None = None) -> None:
        """Write a stream batch to the rows that ``place`` decided; within a step all are device tensors already.

        ``values``: what the memory keeps with each row beside image and label, (B, *shape) by name.
        """
        values = values or {}
        if values.keys() != self.values.keys():
            wanted, given = (", ".join(sorted(names)) or "none" for names in (self.values, values))
            raise InputError(
                f"expected the values that the method declares with every batch ({wanted}), got {given}; plan a step "
                "for each batch, the first one too, and give them in keep()"
            )
        self._storing = values
        self._write(rows, images, labels, values)
        self._storing = {}

    def _write(self, rows: Tensor, images: Tensor, labels: Tensor, values: dict[str, Tensor]) -> None:
        rows, images, labels = (part.to(self.device, non_blocking=True) for part in (rows, images, labels))
        self.images.index_copy_(0, rows, images)
        self.device_labels.index_copy_(0, rows, labels)
        for name, value in values.items():
            self.values[name].index_copy_(0, rows, value)

    def holds(self, rows: Tensor, images: Tensor) -> bool:
        """Whether a stream batch was written to the rows that ``place`` decided. This waits for the device.

        It takes no memory there: the device may just have run out of it.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a step may have a stream of its own
        kept = [(row, image) for row, image in zip(rows.tolist(), images.cpu(), strict=True) if row < self.size]
        return bool(kept) and all(torch.equal(self.images[row].cpu(), image) for row, image in kept)

    # --- state ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything but the scratch row, whose content nobody reads; values if there are any."""
        values = {name: value[: self.size] for name, value in self.values.items()}
        return {
            "images": self.images[: self.size],
            "labels": self.labels,
            "tasks": self.tasks,
            "filled": self.filled,
            "seen": self.seen,
            **({"values": values} if values else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state saved from a memory of the same size and image shape."""
        mine = self.state_dict()
        pairs = [(name, state[name], mine[name]) for name in ("images", "labels", "tasks")]
        pairs += [(name, state["values"][name], mine["values"][name]) for name in self.values]
        for name, saved, wanted in pairs:
            if saved.shape != wanted.shape:
                raise ValueError(f"{name} of shape {tuple(saved.shape)} for {tuple(wanted.shape)}")
        filled, seen = state["filled"], state["seen"]
        if not isinstance(filled, int) or not isinstance(seen, int) or filled != min(self.size, seen) or filled < 0:
            raise ValueError(f"{filled!r} images of {seen!r} in a memory of {self.size}")
        self.images[: self.size].copy_(state["images"])
        self.labels.copy_(state["labels"])
        self.tasks.copy_(state["tasks"])
        self.device_labels[: self.size].copy_(self.labels.clamp(min=0))
        for name, value in self.values.items():
            value[: self.size].copy_(state["values"][name])
        self.filled, self.seen = filled, seen
