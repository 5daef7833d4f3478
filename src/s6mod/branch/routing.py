"""Class-conditional routing: class prototypes, their uncertainty, and how many patterns follow from it.

All of it is without gradient and without a value read back to the host. Which patterns are taken is up to the gate.
On a GPU a training step runs the kernels of ``routing_triton``; what they compute stands here. With many classes a
step compares those of its batch with all, and not all with all, so that it does not grow with the square of them.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from s6mod.kernels import kernels_for

Aggregate = Literal["mean", "max"]
Rounding = Literal["ceil", "round"]
Distance = Literal["absolute", "relative"]
FEW = 256  # classes; to compare all of them with all costs less than to sort out which are asked for


class Routing(nn.Module):
    """Prototypes M_c, the uncertainties sigma and the numbers of patterns N_k.

    A training step updates first and asks afterwards, so that a class has a prototype from its first batch on. A
    class that has none even so (it came in mixed samples only) counts as uncertain: sigma = 1.
    """

    prototypes: Tensor  # (num_classes, features) float32
    seen: Tensor  # (num_classes,) bool
    sigma: Tensor  # (num_classes,) how near other seen classes are at the latest update; 1 where none is, or many are
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
        self.register_buffer("sigma", torch.ones(num_classes))
        self.register_buffer("running_distance", torch.zeros(()))

    @torch.no_grad()
    def update(self, features: Tensor, members: Tensor) -> None:
        """Move the prototypes towards the class means of ``features`` (B, ...), and sigma with them.

        ``members`` (B, num_classes) is 1 where a sample is of a class, 0 elsewhere; a row of zeros takes no part.
        """
        if self.many:
            update_present(self, features.flatten(1), members)
            return
        kernels = self._kernels(features, members) if self.distance == "absolute" else None
        (plain_update if kernels is None else kernels.update)(self, features.flatten(1), members)

    @property
    def many(self) -> bool:
        """Whether there are so many classes that sigma is found for those alone that are asked for."""
        return len(self.seen) > FEW

    @torch.no_grad()
    def uncertainty(self) -> Tensor:
        """sigma of all classes, (num_classes,)."""
        if not self.many:
            return self.sigma.clone()
        return self._uncertainty(_distances_between(self.prototypes), self._pairs())

    @torch.no_grad()
    def sample_uncertainty(self, features: Tensor) -> Tensor:
        """sigma of samples whose class is not known, (B,): the sample's own feature stands for M_k."""
        if self.many:
            distances = self._distances_to_all(features.flatten(1))
        else:
            together = torch.cat([features.flatten(1), self.prototypes])
            distances = _distances_between(together)[: len(features), len(features) :]
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
    def count_for_targets(self, q: Tensor, most: int | None = None) -> Tensor:
        """N of training samples, (B,), from their target distributions q, which weigh the classes' sigma.

        ``most``: how many classes q can hold, at the most; unless told, two for each sample.
        """
        if self.many and self.fixed_patterns is None:
            asked = _first_true(q.sum(0) > 0, 2 * len(q) if most is None else most)  # (S,)
            others = (self.seen[asked][:, None] & self.seen).scatter_(1, asked[:, None], False)  # (S, num_classes)
            sigma = self._uncertainty(self._distances_to_all(self.prototypes[asked]), others)
            return self.count(q[:, asked] @ sigma)
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
        return (self.seen[:, None] & self.seen).fill_diagonal_(False)

    def _distances_to_all(self, points: Tensor) -> Tensor:
        """Euclidean distances of points (n, features) to the prototypes of seen classes, (n, num_classes).

        A common shift saves digits, as in ``_distances_between``; no tensor of the size of the prototypes is made.
        """
        seen = self.seen.to(points.dtype)
        centre = seen @ self.prototypes / seen.sum().clamp_min(1)
        radii = torch.cdist(self.prototypes, centre[None], compute_mode="donot_use_mm_for_euclid_dist")
        points = points - centre
        products = points @ self.prototypes.T - (points @ centre)[:, None]
        squares = points.square().sum(1, keepdim=True) + radii.T.square()
        return squares.sub(products, alpha=2).clamp_min(0).sqrt()

    def _uncertainty(self, distances: Tensor, others: Tensor) -> Tensor:
        if self.distance == "relative":
            distances = distances / torch.where(self.running_distance > 0, self.running_distance, 1.0)
        closeness = torch.exp(-self.lambda0 * distances) * others  # 0, below every exp, takes no part in a maximum
        number = others.sum(1)
        sigma = closeness.amax(1) if self.aggregate == "max" else closeness.sum(1) / number
        return torch.where(number > 0, sigma, 1.0)


def plain_update(routing: Routing, features: Tensor, members: Tensor) -> None:
    """``Routing.update`` in PyTorch, for features (B, num_features) on any device and of any floating type."""
    _move(routing.prototypes, routing.seen, routing.momentum, features, members)
    distances, pairs = _distances_between(routing.prototypes), routing._pairs()
    if routing.distance == "relative":
        _follow(routing, _mean(distances, pairs))
    routing.sigma.copy_(routing._uncertainty(distances, pairs))


def update_present(routing: Routing, features: Tensor, members: Tensor) -> None:
    """``Routing.update`` of many classes: only the rows of the batch are touched, and no sigma is found.

    Relative distances are an exception: their mean is over all pairs of classes, whatever they are.
    """
    rows = _first_true(members.sum(0) > 0, len(members))  # (S,) all classes of the batch, and some others
    prototypes, seen = routing.prototypes[rows], routing.seen[rows]
    _move(prototypes, seen, routing.momentum, features, members[:, rows])
    routing.prototypes.index_copy_(0, rows, prototypes)
    routing.seen.index_copy_(0, rows, seen)
    if routing.distance == "relative":
        _follow(routing, routing.mean_distance())


def _move(prototypes: Tensor, seen: Tensor, momentum: float, features: Tensor, members: Tensor) -> None:
    """Prototypes (n, num_features) a step towards the means of their members (B, n), in place; ``seen`` with them."""
    counts = members.sum(0)
    means = members.T @ features / counts.clamp_min(1)[:, None]
    present = counts > 0
    # Weight of the batch mean: 1 at first sight, 1 - momentum later, 0 for a class that is absent.
    step = torch.where(seen, 1 - momentum, 1.0) * present
    prototypes.lerp_(means, step[:, None].to(means.dtype))
    seen.logical_or_(present)


def _follow(routing: Routing, mean: Tensor) -> None:
    """Move the running distance towards the mean distance of now."""
    step = torch.where(routing.running_distance > 0, 1 - routing.momentum, 1.0)
    routing.running_distance.lerp_(mean, step.to(mean.dtype))


def _first_true(mask: Tensor, number: int) -> Tensor:
    """Where ``mask`` (n,) is true, filled up to ``number`` places (n at the most) by some where it is not.

    So the shape does not depend on the data, and no value is read back.
    """
    return mask.byte().sort(descending=True, stable=True).indices[:number]


def _distances_between(points: Tensor) -> Tensor:
    """Euclidean distances between the rows of ``points`` (n, features), (n, n), by one matrix product."""
    points = points - points.mean(0)  # a common shift changes no distance, but shorter vectors lose fewer digits
    products = points @ points.T
    squares = products.diagonal()
    return (squares[:, None] + squares).sub(products, alpha=2).clamp_min(0).sqrt()


def _mean(distances: Tensor, pairs: Tensor) -> Tensor:
    return (distances * pairs).sum() / pairs.sum().clamp_min(1)
