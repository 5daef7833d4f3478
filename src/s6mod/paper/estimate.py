"""What a handful of seeds says: mean, spread, interval, and whether a published figure lies in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

LEVEL = 0.95
# Student's t for 1, 2, ... degrees of freedom; scipy, which has them all, takes longer to import than a table to print.
QUANTILES = (
    12.706204736174694,
    4.302652729749462,
    3.1824463052837078,
    2.7764451051977934,
    2.5705818356363146,
    2.4469118511449786,
    2.364624251592784,
    2.306004135204166,
    2.262157162798205,
    2.228138851986274,
    2.200985160091639,
    2.1788128296672284,
    2.1603686564627913,
    2.144786687917804,
    2.131449545559776,
    2.1199052992212546,
    2.1098155778333156,
    2.1009220402410382,
    2.0930240544083087,
    2.085963447265864,
    2.0796138447276795,
    2.0738730679040254,
    2.0686576104190486,
    2.0638985616280245,
    2.0595385527532972,
    2.0555294386428735,
    2.0518305164802846,
    2.0484071417952454,
    2.045229642132703,
    2.0422724563012378,
)
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
        return cls(n, fmean(values), std, _quantile(n - 1) * std / n**0.5)


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


def _quantile(freedom: int) -> float:
    if freedom <= len(QUANTILES):
        return QUANTILES[freedom - 1]
    from scipy.special import stdtrit  # slow to import, and few tables have so many seeds

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
