"""Augmentation by a short word, ``none``, ``light`` or ``published``, in place of its options.

A word is never stored: a configuration holds the options that it stands for, or null for ``none``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from s6mod.augment.base import Augment, to_float
from s6mod.config import Config, Words


def words(**light: Any) -> Words:
    """What each word stands for; published are the defaults.

    ``light`` leaves a letter the letter it is: a little larger or aside, but not mirrored, and with its colours.
    """
    light |= {"scale": [0.8, 1.0], "flip_probability": 0.0, "grey_probability": 0.0}
    return {"none": None, "light": light, "published": {}}


class Untouched(Augment[None]):
    """Images as they are: nothing is drawn, and nothing is computed beyond pixels as floats."""

    def draw(self, batch: int, size: tuple[int, int], generator: torch.Generator, device: torch.device) -> None:
        """Nothing."""

    def apply(self, x: Tensor, params: None) -> Tensor:
        """``x`` (B, 3, H, W); floats come back as they are, without a copy."""
        return to_float(x) if x.dtype == torch.uint8 else x


def augmentation(kind: Callable[[Any], Augment[Any]], options: Config | None) -> Augment[Any]:
    """The augmentation of class ``kind`` with its options; without options, none."""
    return Untouched() if options is None else kind(options)
