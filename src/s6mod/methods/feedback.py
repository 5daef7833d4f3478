"""Adaptive prototypical feedback (APF) of OnPro: which memory images a step mixes, in what shares, with what labels.

An image of the mixed batch is (1 - lambda) first + lambda second. In the base part both are images of the memory batch;
in the pair part they are images of two classes, the more often the closer the prototypes mu of the two lie. These are
pure functions of classes, rows and prototypes; pixels are the method's business. Draws stay on the device, the only
place where mu is known, and no shape depends on a value.

The network knows classes by their labels. Where their order matters (which class of a pair is the first, what number
stands for a mixed label) it is that of first appearance in the stream; a class's ``position`` is its place in it.
"""

import math
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from s6mod.augment import uniform_numbers
from s6mod.branch.base import Targets
from s6mod.config import Config
from s6mod.methods.prototypes import draw_pairs, has_prototype

BASE_MIX = 0.6  # lambda of the base part is uniform from 0 to this
PAIR_BETA = 0.4  # alpha: lambda of the pair part is drawn from Beta(alpha, alpha)


class FeedbackConfig(Config):
    """Options of the feedback."""

    base_rate: float = Field(
        0.9, ge=0, le=1, description="share of the memory batch that is mixed within itself; the rest comes in pairs"
    )
    mixup_probability: float = Field(
        0.2, ge=0, le=1, description="p: a pair of classes is mixed with probability p, an image of the base part p^2"
    )
    truncate_mixed_labels: bool = Field(
        True,
        description="class of a mixed image in the chain of CCL-DC: the one whose place in the class order is the "
        "mixture of the two places, truncated, as in the published results; or that of the larger share",
    )


class Mixture(NamedTuple):
    """Rows of the memory two by two, and the share of the second."""

    first: Tensor  # (n,)
    second: Tensor  # (n,)
    mix: Tensor  # (n,) lambda, 0 where an image stays as it is


class Mixed(NamedTuple):
    """The memory batch of a step: which rows it is made of, and three forms of its labels."""

    rows: Mixture
    targets: Targets
    scalars: Tensor  # (n,) float: see ``scalar_labels``
    single: Tensor  # (n,) one class for each image, mixed or not


def base_rows(replay: Tensor, rate: float, generator: torch.Generator) -> dict[str, Tensor]:
    """On the host: the ``base`` part of a memory batch, rows at random, and their ``partners``, the same shuffled."""
    count = int(len(replay) * rate)
    base = replay[torch.randperm(len(replay), generator=generator)[:count]]
    return {"base": base, "partners": base[torch.randperm(count, generator=generator)]}


def mixed_batch(
    config: FeedbackConfig, rows: dict[str, Tensor], mu: Tensor, labels: Tensor, generator: torch.Generator
) -> Mixed:
    """On the device: [base part ; pair part] in place of the memory batch; that as it is if no base part was planned.

    ``rows``: the memory batch ``replay``, the class ``order`` and perhaps ``base_rows``. ``labels``: see ``pair_part``.
    """
    replay, order = rows["replay"], rows["order"]
    position = order.argsort()
    if "base" in rows:
        p, count = config.mixup_probability, len(replay) - len(rows["base"])
        base = base_part(rows["base"], rows["partners"], p, BASE_MIX, generator)
        pairs = pair_part(mu, position, labels, count, p, PAIR_BETA, generator)
        mixture = Mixture(*map(torch.cat, zip(base, pairs, strict=True)))
    else:
        mixture = Mixture(replay, replay, torch.zeros(replay.shape, dtype=torch.float32, device=replay.device))
    first, second, mix = labels[mixture.first], labels[mixture.second], mixture.mix
    scalars = scalar_labels(position[first], position[second], mix)
    single = order[scalars.long()] if config.truncate_mixed_labels else torch.where(mix > 0.5, second, first)
    return Mixed(mixture, Targets(first, second, mix), scalars, single)


def base_part(
    rows: Tensor, partners: Tensor, probability: float, highest: float, generator: torch.Generator
) -> Mixture:
    """``rows`` (n,) with their ``partners``: one coin decides whether any is mixed, then each has a coin of its own.

    An image is so mixed with probability ``probability`` squared; lambda is then U(0, ``highest``).
    """
    n = len(rows)
    coins, shares = uniform_numbers(generator, 2 * n + 1).split([n + 1, n])
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
    coins = uniform_numbers(generator, math.comb(C, 2))
    shares = symmetric_beta(count, alpha, generator)
    return Mixture(first, second, shares * (coins < probability)[pairs.number])


def pick(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """For each row of ``candidates`` (n, m) bool a uniformly random column that is true; column 0 if none is."""
    keys = uniform_numbers(generator, *candidates.shape)
    return keys.masked_fill(~candidates, -1).argmax(1)


def pick_distinct(candidates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` random places where ``candidates`` (m,) is true, without replacement; there are at least as many."""
    keys = uniform_numbers(generator, len(candidates))
    return keys.masked_fill(~candidates, -1).topk(count).indices


def symmetric_beta(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """``count`` draws of Beta(alpha, alpha), alpha > 0, each from four uniform numbers and without rejection.

    Beta(a, a) with a = alpha + 1 is the shadow on one axis of a point in the unit disc whose squared radius is
    1 - U^(2 / (2 a - 1)). It is also the share of one of two Gamma(a) variates in their sum. These become Gamma(alpha)
    when each is multiplied by a U^(1 / alpha), which moves the logit of the share.
    """
    radius, angle, u, v = 1 - uniform_numbers(generator, 4, count)  # in (0, 1]: logs are finite
    shadow = (1 - radius ** (2 / (2 * alpha + 1))).sqrt() * torch.cos(2 * math.pi * angle)
    return torch.sigmoid(torch.logit((1 + shadow) / 2) + (u.log() - v.log()) / alpha)


def scalar_labels(first: Tensor, second: Tensor, mix: Tensor) -> Tensor:
    """(1 - lambda) y_first + lambda y_second (n,) in float32, the number that stands for a mixed label.

    Compared by equality it leaves an image mixed across classes alone with its copies; one that is mixed within a class
    keeps that class, but for a rounding error in a few of a hundred.
    """
    return (1 - mix) * first + mix * second
