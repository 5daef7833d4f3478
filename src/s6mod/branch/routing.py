"""Class-conditional routing: class prototypes, their uncertainty, and how many patterns follow from it.

All of it is without gradient and without a value read back to the host. Which patterns are taken is up to the gate.
On a GPU a training step runs the kernels of ``routing_triton``; what they compute stands here.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from s6mod.kernels import kernels_for

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
    sigma: Tensor  # (num_classes,) how near the other seen classes are as of the latest update; 1 where none is
    running_distance: Tensor  # () float32, 0 until two classes have been seen
    different: Tensor  # (num_classes, num_classes) bool: not the same class

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
        self.register_buffer("sigma", torch.ones(num_classes))
        self.register_buffer("running_distance", torch.zeros(()))
        self.register_buffer("different", ~torch.eye(num_classes, dtype=torch.bool), persistent=False)

    @torch.no_grad()
    def update(self, features: Tensor, members: Tensor) -> None:
        """Move the prototypes towards the class means of ``features`` (B, ...), and sigma with them.

        ``members`` (B, num_classes) is 1 where a sample is of a class, 0 elsewhere; a row of zeros takes no part.
        """
        kernels = self._kernels(features, members) if self.distance == "absolute" else None
        (plain_update if kernels is None else kernels.update)(self, features.flatten(1), members)

    @torch.no_grad()
    def sample_uncertainty(self, features: Tensor) -> Tensor:
        """sigma of samples whose class is not known, (B,): the sample's own feature stands for M_k."""
        together = torch.cat([features.flatten(1), self.prototypes])
        distances = _distances_between(together)[: features.shape[0], features.shape[0] :]
        return self._uncertainty(distances, self.seen.expand_as(distances))

    @torch.no_grad()
    def count(self, sigma: Tensor) -> Tensor:
        """N_k = ceil(E sigma_k), at least 1 and at most E, as floats; or ``fixed_patterns``, whatever sigma."""
        if self.fixed_patterns is not None:
            return torch.full_like(sigma, self.fixed_patterns)
        wanted = self.num_patterns * sigma
        wanted = wanted.ceil() if self.rounding == "ceil" else wanted.round()
        return wanted.clamp(1, self.num_patterns)

    @torch.no_grad()
    def count_for_targets(self, q: Tensor) -> Tensor:
        """N of training samples, (B,), from their target distributions q, which weigh the classes' sigma."""
        kernels = self._kernels(q) if self.fixed_patterns is None else None
        count: Tensor = self.count(q @ self.sigma) if kernels is None else kernels.count_for_targets(self, q)
        return count

    @torch.no_grad()
    def mean_distance(self) -> Tensor:
        """The mean distance between the prototypes of two seen classes, 0 if there are not two."""
        return _mean(_distances_between(self.prototypes), self._pairs())

    def _kernels(self, *given: Tensor) -> Any:
        """The fused kernels, or None where the plain version must do."""
        if any(tensor.dtype != torch.float32 for tensor in given):
            return None
        kernels = kernels_for(self.prototypes, "s6mod.branch.routing_triton")
        return kernels if kernels is not None and kernels.suits(self.prototypes) else None

    def _pairs(self) -> Tensor:
        """(num_classes, num_classes) bool: both classes seen, and not the same."""
        return self.seen[:, None] & self.seen & self.different

    def _uncertainty(self, distances: Tensor, others: Tensor) -> Tensor:
        if self.distance == "relative":
            distances = distances / torch.where(self.running_distance > 0, self.running_distance, 1.0)
        closeness = torch.exp(-self.lambda0 * distances) * others  # 0, below every exp, takes no part in a maximum
        number = others.sum(1)
        sigma = closeness.amax(1) if self.aggregate == "max" else closeness.sum(1) / number
        return torch.where(number > 0, sigma, 1.0)


def plain_update(routing: Routing, features: Tensor, members: Tensor) -> None:
    """``Routing.update`` in PyTorch, for features (B, num_features) on any device and of any floating type."""
    counts = members.sum(0)
    means = members.T @ features / counts.clamp_min(1)[:, None]
    present = counts > 0
    # Weight of the batch mean: 1 at first sight, 1 - momentum later, 0 for a class that is absent.
    step = torch.where(routing.seen, 1 - routing.momentum, 1.0) * present
    routing.prototypes.lerp_(means, step[:, None].to(means.dtype))
    routing.seen.logical_or_(present)

    distances, pairs = _distances_between(routing.prototypes), routing._pairs()
    if routing.distance == "relative":
        step = torch.where(routing.running_distance > 0, 1 - routing.momentum, 1.0)
        routing.running_distance.lerp_(_mean(distances, pairs), step.to(means.dtype))
    routing.sigma.copy_(routing._uncertainty(distances, pairs))


def _distances_between(points: Tensor) -> Tensor:
    """Euclidean distances between the rows of ``points`` (n, features), (n, n), by one matrix product."""
    points = points - points.mean(0)  # a common shift changes no distance, but shorter vectors lose fewer digits
    products = points @ points.T
    squares = products.diagonal()
    return (squares[:, None] + squares).sub(products, alpha=2).clamp_min(0).sqrt()


def _mean(distances: Tensor, pairs: Tensor) -> Tensor:
    return (distances * pairs).sum() / pairs.sum().clamp_min(1)
