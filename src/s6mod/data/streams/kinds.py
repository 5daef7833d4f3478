"""The kinds of stream: each takes the samples with their home tasks and says which come in which task, in order.

Only integers are drawn, and floats where every machine computes the same bits: a seed gives one plan everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

UNIT = 2**20  # steps of a draw from the bell curve in one standard deviation


@dataclass(frozen=True)
class Samples:
    """What takes part in a stream."""

    ids: Tensor  # (N,) rows of the training split, ascending
    labels: Tensor  # (N,) the class of each
    homes: Tensor  # (N,) the home task of each
    class_order: tuple[int, ...]
    num_tasks: int

    def by_class(self) -> Iterator[tuple[Tensor, int]]:
        """Positions (n,) of each class's samples, in the order of classes, with their home task."""
        positions = grouped(self.labels, max(self.class_order) + 1)
        for label in self.class_order:
            own = positions[label]
            if len(own):
                yield own, int(self.homes[own[0]])


def grouped(keys: Tensor, number: int) -> list[Tensor]:
    """The positions, ascending, of each of the keys 0 ... number-1 in ``keys`` (N,), by one sort for all of them."""
    return list(keys.argsort(stable=True).split(keys.bincount(minlength=number).tolist()))


def class_incremental(samples: Samples, rng: torch.Generator) -> list[Tensor]:
    """Each sample once, in its home task."""
    return _shuffled(samples.ids, samples.homes, samples.num_tasks, rng)


def blurry(samples: Samples, blur: float, rng: torch.Generator) -> list[Tensor]:
    """Each sample once; of each class the share ``blur``, rounded down, comes in other tasks than its home.

    Those samples are dealt to the other tasks as evenly as possible, the remainder by chance.
    """
    tasks = samples.homes.clone()
    for own, home in samples.by_class():
        moved = own[torch.randperm(len(own), generator=rng)][: int(Fraction(str(blur)) * len(own))]
        others = torch.tensor([task for task in range(samples.num_tasks) if task != home])
        others = others[torch.randperm(len(others), generator=rng)]
        tasks[moved] = others[torch.arange(len(moved)) % len(others)]
    return _shuffled(samples.ids, tasks, samples.num_tasks, rng)


def repeated(samples: Samples, probability: float, repeats: int, rng: torch.Generator) -> list[Tensor]:
    """Each sample ``repeats`` times; a class comes in its home task and in each later one with ``probability``.

    Its samples are shared by the tasks in which it comes, as evenly as possible: the class's samples in random order,
    the whole ``repeats`` times over, are cut into as many runs. So a sample recurs within a task only if its class
    comes in fewer than ``repeats`` tasks.
    """
    ids, tasks = [], []
    for own, home in samples.by_class():
        chances = torch.rand(samples.num_tasks, generator=rng, dtype=torch.float32)  # whatever torch's default is
        back = chances < probability
        present = [home] + [task for task in range(home + 1, samples.num_tasks) if back[task]]
        visits = samples.ids[own[torch.randperm(len(own), generator=rng)]].repeat(repeats)
        for task, share in zip(present, visits.tensor_split(len(present)), strict=True):
            ids.append(share)
            tasks.append(torch.full_like(share, task))
    return _shuffled(torch.cat(ids), torch.cat(tasks), samples.num_tasks, rng)


def task_free(samples: Samples, spread: float, rng: torch.Generator) -> list[Tensor]:
    """Each sample once, at a time of its own: the Gaussian schedule, cut where the home tasks would end.

    The stream lasts from 0 to 1. Without overlap, classes would follow one another in their order, each for its share
    of the samples; the middle of that interval is the mean of a class's arrival times, ``spread`` their standard
    deviation. A normal draw is the sum of twelve uniform integers: a logarithm may differ in its last bit between
    machines, a sum does not.
    """
    draws = torch.randint(UNIT, (12, len(samples.ids)), generator=rng).sum(0) - 6 * UNIT
    times = spread * (draws.double() / UNIT)
    before = 0
    for own, _ in samples.by_class():
        times[own] += (before + len(own) / 2) / len(samples.ids)
        before += len(own)
    in_order = samples.ids[times.argsort(stable=True)]
    return list(in_order.split(torch.bincount(samples.homes, minlength=samples.num_tasks).tolist()))


def iid(samples: Samples, rng: torch.Generator) -> list[Tensor]:
    """Each sample once, in random order over the whole stream, cut where the home tasks would end."""
    in_order = samples.ids[torch.randperm(len(samples.ids), generator=rng)]
    return list(in_order.split(torch.bincount(samples.homes, minlength=samples.num_tasks).tolist()))


def _shuffled(ids: Tensor, tasks: Tensor, num_tasks: int, rng: torch.Generator) -> list[Tensor]:
    """The ids of each task, in random order."""
    return [ids[own[torch.randperm(len(own), generator=rng)]] for own in grouped(tasks, num_tasks)]
