"""Class-conditional routing: class prototypes, their uncertainty, and how many patterns follow from it.

All of it is without gradient and without a value read back to the host. Which patterns are taken is up to the gate.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from s6mod.branch.base import Targets
from s6mod.branch.precision import full_precision

Aggregate = Literal["mean", "max"]
Rounding = Literal["ceil", "round"]
Distance = Literal["absolute", "relative"]


class Routing(nn.Module):
    """Prototypes M_c, the uncertainties sigma and the numbers of patterns N_k.

    A training step updates first and asks afterwards, so that a class has a prototype from its first batch on. A
    class that has none even so (it came in mixed samples only) counts as uncertain: sigma = 1.
    """

    prototypes: Tensor  # (num_classes, features) float32
    seen: Tensor  # (num_classes,) bool
    running_distance: Tensor  # () float32, 0 until two classes have been seen

    def __init__(
        self,
        num_classes: int,
        num_features: int,
        num_patterns: int,
        *,
        lambda0: float = 1 / 24,
        momentum: float = 0.8,
        aggregate: Aggregate = "mean",
        rounding: Rounding = "ceil",
        distance: Distance = "absolute",
        fixed_patterns: int | None = None,
    ) -> None:
        super().__init__()
        self.num_patterns, self.lambda0, self.momentum = num_patterns, lambda0, momentum
        self.aggregate, self.rounding, self.distance = aggregate, rounding, distance
        self.fixed_patterns = fixed_patterns
        self.register_buffer("prototypes", torch.zeros(num_classes, num_features))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("running_distance", torch.zeros(()))

    @torch.no_grad()
    @full_precision
    def update(self, features: Tensor, targets: Targets) -> None:
        """Move the prototypes towards the class means of the un-mixed samples' ``features`` (B, ...)."""
        members = targets.soft(len(self.prototypes)).to(features.dtype)  # (B, num_classes), one-hot where it counts
        if targets.partners is not None and targets.mix is not None:
            members = members * (targets.mix == 0)[:, None]
        counts = members.sum(0)
        means = members.T @ features.flatten(1) / counts.clamp_min(1)[:, None]
        present = counts > 0
        # Weight of the batch mean: 1 at first sight, 1 - momentum later, 0 for a class that is absent.
        step = torch.where(self.seen, 1 - self.momentum, 1.0) * present
        self.prototypes.lerp_(means, step[:, None].to(means.dtype))
        self.seen.logical_or_(present)
        if self.distance == "relative":
            step = torch.where(self.running_distance > 0, 1 - self.momentum, 1.0)
            self.running_distance.lerp_(self.mean_distance(), step.to(means.dtype))

    @torch.no_grad()
    def class_uncertainty(self) -> Tensor:
        """sigma_k of every class, (num_classes,): how near the other seen classes are; 1 where none is."""
        return self._uncertainty(_distances(self.prototypes, self.prototypes), self._pairs())

    @torch.no_grad()
    @full_precision
    def sample_uncertainty(self, features: Tensor) -> Tensor:
        """sigma of samples whose class is not known, (B,): the sample's own feature stands for M_k."""
        distances = _distances(features.flatten(1), self.prototypes)
        return self._uncertainty(distances, self.seen.expand_as(distances))

    @torch.no_grad()
    def count(self, sigma: Tensor) -> Tensor:
        """N_k = ceil(E sigma_k), at least 1 and at most E, as int64; or ``fixed_patterns``, whatever sigma."""
        if self.fixed_patterns is not None:
            return torch.full_like(sigma, self.fixed_patterns, dtype=torch.int64)
        wanted = self.num_patterns * sigma
        wanted = wanted.ceil() if self.rounding == "ceil" else wanted.round()
        return wanted.clamp(1, self.num_patterns).long()

    @torch.no_grad()
    def count_for_targets(self, q: Tensor) -> Tensor:
        """N of training samples, (B,), from their target distributions q, which weigh the classes' sigma."""
        return self.count((q * self.class_uncertainty()).sum(1))

    @torch.no_grad()
    def mean_distance(self) -> Tensor:
        """The mean distance between the prototypes of two seen classes, 0 if there are not two."""
        pairs = self._pairs()
        distances = _distances(self.prototypes, self.prototypes)
        mean: Tensor = (distances * pairs).sum() / pairs.sum().clamp_min(1)
        return mean

    def _pairs(self) -> Tensor:
        """(num_classes, num_classes) bool: both classes seen, and not the same."""
        itself = torch.eye(len(self.seen), dtype=torch.bool, device=self.seen.device)
        return self.seen[:, None] & self.seen & ~itself

    def _uncertainty(self, distances: Tensor, others: Tensor) -> Tensor:
        if self.distance == "relative":
            distances = distances / torch.where(self.running_distance > 0, self.running_distance, 1.0)
        closeness = torch.exp(-self.lambda0 * distances) * others  # 0, below every exp, takes no part in a maximum
        mean = closeness.sum(1) / others.sum(1).clamp_min(1)
        return torch.where(others.any(1), closeness.amax(1) if self.aggregate == "max" else mean, 1.0)


@full_precision
def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances between the rows of a and b, (len(a), len(b)), by one matrix product."""
    centre = b.mean(0)  # a common shift changes no distance, but shorter vectors lose fewer digits
    a, b = a - centre, b - centre
    squared = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
    return squared.clamp_min(0).sqrt()
