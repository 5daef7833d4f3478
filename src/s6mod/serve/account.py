"""How a service does: accuracy before learning, images by class, and both over time.

A batch is tested by the copy that predicts when its turn comes, as whoever asked then was answered. It is no part of
what learns: it is saved beside it, and a rollback takes it back as well.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from s6mod.config import Config
from s6mod.learner.classes import Classes, Name
from s6mod.learner.prequential import WINDOW, Tally

MOST_POINTS = 400  # of the curve; then every second one goes
ENOUGH = 100  # tested images that make an accuracy worth acting on


class Kept(Config):
    """An account as it is saved."""

    sums: list[tuple[int, float, float, float, float]] = Field(min_length=1)  # of the tally
    window: list[tuple[int, int]] = Field(max_length=WINDOW)
    images: list[tuple[Name, int]]
    curve: list[tuple[int, float]]
    stride: int = Field(ge=1)


class Account:
    """What is counted from batch to batch."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.images: Counter[Name] = Counter()  # learned, by label
        self.curve: list[tuple[int, float]] = []  # journal number, windowed accuracy in percent
        self._stride = 1  # batches between two points
        self._since = 0

    def count(self, number: int, labels: Sequence[Name], classes: Classes, hits: Tensor | None) -> None:
        """Add a batch that was learned, the journal's ``number``; ``hits``: which images were predicted right."""
        self.images.update(labels)
        if hits is None:
            return
        self.tally.count_hits(classes.numbers(list(labels), len(labels)), hits)
        self._since += 1
        if self._since >= self._stride:
            self.curve.append((number, round(self._windowed(), 2)))
            self._since = 0
        if len(self.curve) > MOST_POINTS:
            self.curve, self._stride = self.curve[1::2], 2 * self._stride

    def accuracy(self) -> float | None:
        """Windowed, in percent; None while too few images were tested."""
        return self._windowed() if len(self.tally.window) >= ENOUGH else None

    def _windowed(self) -> float:
        return 100 * sum(hit for _, hit in self.tally.window) / len(self.tally.window)

    def kept(self) -> Kept:
        """As it is saved."""
        sums = [(number, a, b, c, d) for number, (a, b, c, d) in self.tally.sums.items()]
        images, window = list(self.images.items()), list(self.tally.window)
        return Kept(sums=sums, window=window, images=images, curve=self.curve, stride=self._stride)

    @classmethod
    def of(cls, kept: Kept) -> "Account":
        """What ``kept`` gave."""
        account = cls()
        account.tally.sums = {number: list(values) for number, *values in kept.sums}
        account.tally.window = deque(kept.window, maxlen=WINDOW)
        account.images = Counter(dict(kept.images))
        account.curve, account._stride = list(kept.curve), kept.stride
        return account


def right(predicted: Any, labels: Sequence[Name]) -> Tensor:
    """Which predictions are the label, (N,) bool on the host."""
    return torch.tensor([found == label for found, label in zip(predicted.tolist(), labels, strict=True)])
