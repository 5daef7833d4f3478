"""Prototypes of OnPro, the mean projections of classes: their online equilibrium (OPE), and which of them lie close.

These are pure functions of projections, labels and prototypes. Images of close classes are the business of
``feedback``.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import uniform_numbers
from s6mod.methods.contrastive import unit
from s6mod.precision import full_precision

MIN_DISTANCE = 1e-12  # two equal prototypes are just very close


# --- equilibrium ----------------------------------------------------------------------------------------------


def equilibrium(
    z1: Tensor, z2: Tensor, labels: Tensor, num_classes: int, temperature: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """OPE of projections (N, P) of two views, and mu (num_classes, P): their prototypes as they are, averaged."""
    (p1, present), (p2, _) = (class_means(unit(z, epsilon), labels, num_classes) for z in (z1, z2))
    return equilibrium_loss(p1, p2, present, temperature, epsilon), (p1 + p2).detach() / 2


@full_precision
def class_means(z: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The mean of the rows of ``z`` (N, P) of each class, (num_classes, P) and zero if it has none; and if it has any.

    One matrix product, whose sums have the same order every time.
    """
    member = (labels == torch.arange(num_classes, device=labels.device)[:, None]).to(z.dtype)  # (num_classes, N)
    count = member.sum(1)
    return member @ z / count.clamp(min=1)[:, None], count > 0


@full_precision
def equilibrium_loss(p1: Tensor, p2: Tensor, present: Tensor, temperature: float, epsilon: float) -> Tensor:
    """OPE: mean over the 2 k prototypes of -log softmax(cosine / temperature), taken at the same class's other view.

    ``p1`` and ``p2`` (C, P) are the prototypes of two views, of which the k classes where ``present`` (C,) is true
    count. A prototype is not compared with itself, so that one class alone gives 0.
    """
    p = unit(torch.cat([p1, p2]), epsilon)
    present = present.repeat(2)
    cosine = p @ p.T / temperature  # (2 C, 2 C)
    itself = torch.eye(len(p), dtype=torch.bool, device=p.device)
    everything = cosine.masked_fill(itself | ~present, -torch.inf).logsumexp(1)
    other_view = cosine.diagonal(len(p1)).repeat(2)
    return ((everything - other_view) * present).sum() / present.sum()


# --- pairs of classes -----------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Classes two by two."""

    first: Tensor  # (n,) the one that comes earlier in the class order
    second: Tensor  # (n,)
    number: Tensor  # (n,) of the pair: the same whenever these two classes meet


def draw_pairs(mu: Tensor, position: Tensor, count: int, generator: torch.Generator) -> Pairs:
    """``count`` pairs of the classes that have a prototype in ``mu`` (C, P); ``position`` (C,) is the class order.

    A pair comes round(weight * count) times, weight = softmax over all pairs of 1 / ||mu_i - mu_j||. What is missing
    then is added, one each, to random distinct pairs; what is too much is taken from random distinct ones that came.
    Only with fewer than two prototypes are there classes without one in the answer.
    """
    C = len(mu)
    i, j = torch.triu_indices(C, C, 1, device=mu.device)  # (C (C - 1) / 2,), in the order of pdist
    known = has_prototype(mu)
    exists = known[i] & known[j]
    closeness = F.pdist(mu).clamp(min=MIN_DISTANCE).reciprocal()
    # A finite filling, since a softmax over nothing but -inf would be NaN.
    weight = closeness.masked_fill(~exists, torch.finfo(mu.dtype).min).softmax(0)
    times = (weight * count).round().long()

    missing = count - times.sum()
    changeable = torch.where(missing > 0, exists, times > 0)
    keys = uniform_numbers(generator, len(times)).masked_fill(~changeable, -1)
    rank = keys.argsort(descending=True).argsort()
    times = times + missing.sign() * (rank < missing.abs())

    number = torch.searchsorted(times.cumsum(0), torch.arange(count, device=mu.device), right=True)
    i, j = i[number], j[number]
    swapped = position[i] > position[j]
    return Pairs(torch.where(swapped, j, i), torch.where(swapped, i, j), number)


def has_prototype(mu: Tensor) -> Tensor:
    """(C,) bool: the rows of ``mu`` (C, P) that are not zero."""
    return (mu != 0).any(1)
