"""What a handful of seeds says: mean, spread, interval, and whether a published figure lies in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from scipy.special import stdtrit  # scipy comes with scikit-learn

LEVEL = 0.95
ENOUGH = 3  # seeds that a verdict takes
WORTH = (
    "A single run is worth little: another seed, or the same one with another number of threads, may be several points "
    "away. Tell learners apart by three seeds or more."
)
LAGS = 10.0  # points of N-Acc that a head must be behind nearest class means to be explained
NARROW = 2.0  # points: half of an interval that is narrow enough to say that two figures agree
PAPER_RUNS = 10  # that each of the paper's figures is an average of

Word = Literal["agrees", "differs", "open", "not run", ""]


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


@dataclass(frozen=True)
class Verdict:
    """What our seeds say of a published figure, and if they leave it open, how many seeds would decide it."""

    word: Word
    seeds: int | None = None

    def __str__(self) -> str:
        return f"{self.word} (n = {self.seeds})" if self.seeds else self.word


def verdict(ours: Estimate | None, paper: tuple[float, float] | None) -> Verdict:
    """By Welch's interval of our mean minus the paper's, whose spread is taken as that of ten runs.

    They differ if the interval excludes 0 with three seeds or more. They agree if it contains 0 and its half is at most
    two points. Else it is open: more seeds, spread as ours are so far, would make one of the two true.
    """
    if paper is None:
        return Verdict("")
    if ours is None:
        return Verdict("not run")
    apart, (_, spread) = abs(ours.mean - paper[0]), paper
    std = ours.std if ours.std is not None else spread

    def decides(n: int) -> Word:
        half = welch_half(std, n, spread, PAPER_RUNS)
        return "differs" if apart > half else "agrees" if half <= NARROW else "open"

    word = decides(ours.n) if ours.n >= ENOUGH else "open"
    if word != "open":
        return Verdict(word)
    return Verdict("open", next((n for n in range(max(ENOUGH, ours.n + 1), 1000) if decides(n) != "open"), None))


def welch_half(std: float, n: int, other_std: float, other_n: int) -> float:
    """Half of the 95 % interval of a difference of two means whose spreads need not be alike (Welch)."""
    mine, its = std**2 / n, other_std**2 / other_n
    if mine + its == 0:
        return 0.0
    freedom = (mine + its) ** 2 / (mine**2 / (n - 1) + its**2 / (other_n - 1))
    return _quantile(freedom) * math.sqrt(mine + its)


def _quantile(freedom: float) -> float:
    return float(stdtrit(freedom, (1 + LEVEL) / 2))
