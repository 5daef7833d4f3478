"""Test, then train: how well images of a stream are predicted just before they are learned.

Every image is new to the learner when it is tested, so this tells on the stream itself how it does.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from s6mod.learner.calibration import FRESH, Temperature
from s6mod.learner.classes import Classes, Name

WINDOW = 1000  # images of the stream
DECAY = 0.999  # weight that an image loses with each that comes after it
ALL = -1  # the number of no class


@dataclass(frozen=True)
class Accuracy:
    """In percent, of n images, the i-th of which was predicted right (h_i = 1) or not (h_i = 0); NaN if of none."""

    images: int  # n
    accuracy: float  # 100 sum_i h_i / n
    windowed: float  # the same of those that are among the latest WINDOW images of the stream
    decayed: float  # 100 sum_i DECAY^(n-i) h_i / sum_i DECAY^(n-i)


@dataclass(frozen=True)
class Prequential(Accuracy):
    """Of all images but those of the first batch, which nothing could predict yet."""

    by_class: Mapping[Name, Accuracy] = field(default_factory=dict)  # by label; for its decay, its images alone count


class Tally:
    """What is kept of the tests."""

    def __init__(self) -> None:
        self.sums: dict[int, list[float]] = {ALL: [0.0] * 4}  # by class: images, hits, decayed images, decayed hits
        self.window: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # class and hit of an image
        self.temperature = Temperature()

    def count(self, labels: Tensor, scores: Tensor) -> None:
        """Add a batch: numbers of classes (N,), and the scores that predicted them (N, classes), on the host."""
        old = torch.tensor([self.sums.get(label, [0.0])[0] >= FRESH for label in labels.tolist()], dtype=torch.bool)
        self.temperature.count(scores[old], labels[old])
        self.count_hits(labels, scores.argmax(1) == labels)

    def count_hits(self, labels: Tensor, hits: Tensor) -> None:
        """The same where only is known which images were predicted right, (N,) bool."""
        for label, hit in zip(labels.tolist(), hits.int().tolist(), strict=True):
            self.window.append((label, hit))
            for number in (ALL, label):
                images, right, weight, decayed = self.sums.get(number, [0.0] * 4)
                self.sums[number] = [images + 1, right + hit, DECAY * weight + 1, DECAY * decayed + hit]

    def told(self, classes: Classes) -> Prequential:
        """The figures as they are now, by the labels of the classes."""
        tested = sorted(self.sums.keys() - {ALL})
        labels: list[Name] = classes.labels(torch.tensor(tested, dtype=torch.int64)).tolist()
        recent: dict[int, list[int]] = {number: [] for number in tested}
        for number, hit in self.window:
            recent[number].append(hit)
        by_class = {
            label: Accuracy(*self._figures(number, recent[number]))
            for label, number in zip(labels, tested, strict=True)
        }
        return Prequential(*self._figures(ALL, [hit for _, hit in self.window]), by_class)

    def _figures(self, number: int, recent: list[int]) -> tuple[int, float, float, float]:
        images, right, weight, decayed = self.sums[number]
        return int(images), _percent(right, images), _percent(sum(recent), len(recent)), _percent(decayed, weight)

    def state_dict(self) -> dict[str, Any]:
        """Rows of class, images, hits, decayed images, decayed hits; the window; log-losses by temperature."""
        sums = [[number, *values] for number, values in self.sums.items()]
        window = torch.tensor(list(self.window), dtype=torch.int64).reshape(-1, 2)
        return {
            "sums": torch.tensor(sums, dtype=torch.float64),
            "window": window,
            "losses": self.temperature.losses,
        }

    def load_state_dict(self, state: dict[str, Any], capacity: int) -> None:
        """Go on from what ``state_dict`` gave, with classes below ``capacity``."""
        sums, window = state["sums"], state["window"]
        rows = {int(number): values for number, *values in sums.tolist()}
        known = all(ALL <= number < capacity for number in rows) and {int(n) for n, _ in window.tolist()} <= rows.keys()
        if sums.shape[1:] != (5,) or window.shape[1:] != (2,) or ALL not in rows or not known:
            raise ValueError("tests of classes that are not there")
        self.sums, self.window = rows, deque(map(tuple, window.tolist()), maxlen=WINDOW)
        losses = state.get("losses", self.temperature.losses)  # an older version fitted none
        if losses.shape != self.temperature.losses.shape or not losses.isfinite().all():
            raise ValueError("log-losses of other temperatures")
        self.temperature.losses = losses.to(torch.float64)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else float("nan")
