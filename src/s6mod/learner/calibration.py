"""Probabilities that tell how often they are right: one temperature for all scores, fitted on the stream itself.

Every image is new to the learner when it is tested, so its scores show how sure a prediction may be. Images of a class
that has just come are left out: they are surely taken for others, and would make every prediction unsure.
"""

import torch
from torch import Tensor

# 1 / temperature, a quarter of an octave apart
SHARPNESS = 2.0 ** (torch.arange(-40, 41, dtype=torch.float64, device="cpu") / 4)
FRESH = 80  # images of a class that are tested before those count that follow
DECAY = 0.999  # weight that an image loses with each that comes after it
PULL = 0.01  # nats for each octave squared away from 1, as long as little was tested


class Temperature:
    """By what scores are divided before the softmax; of those on a grid, the one with the least decayed log-loss."""

    def __init__(self) -> None:
        self.losses = PULL * SHARPNESS.log2().square()  # (81,), decayed sums

    def count(self, scores: Tensor, labels: Tensor) -> None:
        """Add tested images, none of a fresh class: scores (N, C), labels (N,), on the host."""
        for row, label in zip(scores.double(), labels.tolist(), strict=True):
            loss = (SHARPNESS[:, None] * row).logsumexp(1) - SHARPNESS * row[label]
            if loss.isfinite().all():  # else its class was none to choose from
                self.losses = DECAY * self.losses + loss

    @property
    def value(self) -> float:
        """1 as long as nothing was counted."""
        return 1 / float(SHARPNESS[self.losses.argmin()])
