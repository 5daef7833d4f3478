"""Adaptive prototypical feedback (APF) of OnPro: which memory images a step mixes, and in what shares.

An image of the mixed batch is (1 - lambda) first + lambda second. In the base part both are images of the memory batch;
in the pair part they are images of two classes, the more often the closer the prototypes mu of the two lie. These are
pure functions of classes, rows and prototypes; pixels are the method's business. Draws stay on the device, the only
place where mu is known, and no shape depends on a value.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_DISTANCE = 1e-12  # two equal prototypes are just very close


class Mixture(NamedTuple):
    """Rows of the memory two by two, and the share of the second."""

    first: Tensor  # (n,)
    second: Tensor  # (n,)
    mix: Tensor  # (n,) lambda, 0 where an image stays as it is


class Pairs(NamedTuple):
    """Classes two by two."""

    first: Tensor  # (n,) the one that comes earlier in the class order
    second: Tensor  # (n,)
    number: Tensor  # (n,) of the pair: the same whenever these two classes meet


def base_part(
    rows: Tensor, partners: Tensor, probability: float, highest: float, generator: torch.Generator
) -> Mixture:
    """``rows`` (n,) with their ``partners``: one coin decides whether any is mixed, then each has a coin of its own.

    An image is so mixed with probability ``probability`` squared; lambda is then U(0, ``highest``).
    """
    n = len(rows)
    coins, shares = torch.rand(2 * n + 1, generator=generator, device=rows.device).split([n + 1, n])
    mixed = (coins[:n] < probability) & (coins[n] < probability)
    return Mixture(rows, partners, highest * shares * mixed)


def pair_part(
    mu: Tensor,
    position: Tensor,
    labels: Tensor,
    count: int,
    probability: float,
    alpha: float,
    generator: torch.Generator,
) -> Mixture:
    """``count`` rows of the memory for each class of the pairs that ``draw_pairs`` gives, with replacement.

    ``labels`` (M,) are those of the memory, -1 where it is empty. One coin for each pair of classes decides with
    ``probability`` that its images are mixed, each by a lambda of its own from Beta(alpha, alpha). A class without
    image or prototype is replaced by a random one that has both; where no class has, row 0 serves.
    """
    C = len(mu)
    pairs = draw_pairs(mu, position, count, generator)
    held = labels == torch.arange(C, device=mu.device)[:, None]  # (C, M)
    available = held.any(1) & has_prototype(mu)

    def rows_of(classes: Tensor) -> Tensor:
        substitutes = pick(available.expand(count, C), generator)
        return pick(held[torch.where(available[classes], classes, substitutes)], generator)

    first, second = rows_of(pairs.first), rows_of(pairs.second)
    coins = torch.rand(math.comb(C, 2), generator=generator, device=mu.device)
    shares = symmetric_beta(count, alpha, generator, mu.device)
    return Mixture(first, second, shares * (coins < probability)[pairs.number])


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
    keys = torch.rand(len(times), generator=generator, device=mu.device).masked_fill(~changeable, -1)
    rank = keys.argsort(descending=True).argsort()
    times = times + missing.sign() * (rank < missing.abs())

    number = torch.searchsorted(times.cumsum(0), torch.arange(count, device=mu.device), right=True)
    i, j = i[number], j[number]
    swapped = position[i] > position[j]
    return Pairs(torch.where(swapped, j, i), torch.where(swapped, i, j), number)


def has_prototype(mu: Tensor) -> Tensor:
    """(C,) bool: the rows of ``mu`` (C, P) that are not zero."""
    return (mu != 0).any(1)


def pick(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """For each row of ``candidates`` (n, m) bool a uniformly random column that is true; column 0 if none is."""
    keys = torch.rand(candidates.shape, generator=generator, device=candidates.device)
    return keys.masked_fill(~candidates, -1).argmax(1)


def pick_distinct(candidates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` random places where ``candidates`` (m,) is true, without replacement; there are at least as many."""
    keys = torch.rand(len(candidates), generator=generator, device=candidates.device)
    return keys.masked_fill(~candidates, -1).topk(count).indices


def symmetric_beta(count: int, alpha: float, generator: torch.Generator, device: torch.device) -> Tensor:
    """``count`` draws of Beta(alpha, alpha), alpha > 0, each from four uniform numbers and without rejection.

    Beta(a, a) with a = alpha + 1 is the shadow on one axis of a point in the unit disc whose squared radius is
    1 - U^(2 / (2 a - 1)). It is also the share of one of two Gamma(a) variates in their sum. These become Gamma(alpha)
    when each is multiplied by a U^(1 / alpha), which moves the logit of the share.
    """
    radius, angle, u, v = 1 - torch.rand(4, count, generator=generator, device=device)  # in (0, 1]: logs are finite
    shadow = (1 - radius ** (2 / (2 * alpha + 1))).sqrt() * torch.cos(2 * math.pi * angle)
    return torch.sigmoid(torch.logit((1 + shadow) / 2) + (u.log() - v.log()) / alpha)


def scalar_labels(first: Tensor, second: Tensor, mix: Tensor) -> Tensor:
    """(1 - lambda) y_first + lambda y_second (n,) in float32, the number that stands for a mixed label.

    Compared by equality it leaves an image mixed across classes alone with its copies; one that is mixed within a class
    keeps that class, but for a rounding error in a few of a hundred.
    """
    return (1 - mix) * first + mix * second
