"""What a handful of seeds says: mean, spread, interval, and whether a published figure lies in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from scipy.special import stdtrit  # scipy comes with scikit-learn

LEVEL = 0.95
ENOUGH = 3  # seeds below which nothing is decided

Verdict = Literal["reproduced", "better", "below", "undecided", "not run", ""]


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds. ``std`` (n - 1) and ``half``, half of the 95 % interval (Student's t), need two of them."""

    n: int
    mean: float
    std: float | None
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The estimate from one value for each seed, at least one."""
        n = len(values)
        if n < 2:
            return cls(n, values[0], None, None)
        std = stdev(values)
        quantile = float(stdtrit(n - 1, (1 + LEVEL) / 2))
        return cls(n, fmean(values), std, quantile * std / n**0.5)


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> Estimate | None:
    """Mean difference over the seeds that both have; None if there are none."""
    differences = [ours[seed] - base[seed] for seed in sorted(ours.keys() & base.keys())]
    return Estimate.of(differences) if differences else None


def verdict(ours: Estimate | None, paper: float | None, higher_is_better: bool) -> Verdict:
    """Reproduced: the 95 % interval of our mean minus the paper's contains 0. It takes three seeds to decide."""
    if paper is None:
        return ""
    if ours is None:
        return "not run"
    if ours.n < ENOUGH or ours.half is None:
        return "undecided"
    difference = ours.mean - paper
    if abs(difference) <= ours.half:
        return "reproduced"
    return "better" if (difference > 0) == higher_is_better else "below"
