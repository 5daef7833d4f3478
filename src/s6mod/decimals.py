"""Numbers as people read them: so many digits behind the point, a spread behind ±, no minus before a zero, round steps.

Files for programs hold numbers at full length; nothing of this is for them.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Literal


def decimal(value: float, digits: int = 2, sign: Literal["", "+"] = "") -> str:
    """A number, with ``sign`` "+" also if it is positive; what rounds to zero is 0.00 or +0.00 from either side."""
    return f"{value:{sign}z.{digits}f}"


def spread(mean: float, std: float | None, digits: int = 2, gap: str = "") -> str:
    """``mean±std``, with ``gap`` around the sign, or the mean alone."""
    return decimal(mean, digits) + _behind(std, digits, gap)


def difference(mean: float, half: float | None = None, gap: str = "") -> str:
    """``+mean±half``: a difference with half of its interval, or alone."""
    return decimal(mean, sign="+") + _behind(half, 2, gap)


def round_number(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, ... that is not below ``least``: a step that people count by."""
    size = 1
    while 5 * size < least:
        size *= 10
    return next(step for step in (size, 2 * size, 5 * size) if step >= least)


def ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 -> ``0-2, 5``."""
    groups = groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in group] for _, group in groups]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def _behind(value: float | None, digits: int, gap: str) -> str:
    return "" if value is None else f"{gap}±{gap}{decimal(value, digits)}"
