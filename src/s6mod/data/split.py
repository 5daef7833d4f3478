"""How own data is read, and how it is split where it comes in one piece."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from s6mod.errors import ConfigError, DataError
from s6mod.random import generator

LEAST_SIDE = 8  # pixels that the backbones need


@dataclass(frozen=True)
class Reading:
    """How own data is read."""

    size: int | None = None  # side of the square that images are resized to; None: see the reader
    test_fraction: float = 0.2  # share of each class held out, where there is no test split
    split_seed: int = 0  # names that split
    skip_bad: bool = False  # pass over unreadable images instead of refusing them

    def __post_init__(self) -> None:
        if self.size is not None and not (isinstance(self.size, int | np.integer) and self.size >= LEAST_SIDE):
            raise ConfigError(
                f"expected a size of {LEAST_SIDE} pixels or more, got {self.size}; raise it, or leave it out"
            )
        if not 0 < self.test_fraction < 1:
            raise ConfigError(f"expected a test_fraction between 0 and 1, got {self.test_fraction}; choose another")


def held_out(labels: NDArray[np.int64], class_names: tuple[str, ...], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which samples (N,) are test samples: of each class the same share, at least one, never all."""
    draws = generator(seed, "test split")
    test = np.zeros(len(labels), np.bool_)
    by_class = np.argsort(labels, kind="stable")  # one sort, however many classes there are
    starts = np.searchsorted(labels[by_class], np.arange(len(class_names) + 1))
    for label, name in enumerate(class_names):
        own = by_class[starts[label] : starts[label + 1]]
        if len(own) < 2:
            raise DataError(
                f"expected at least two images of class {name!r}, to train and to test on, got {len(own)}; "
                "add some, or drop the class"
            )
        count = min(max(round(fraction * len(own)), 1), len(own) - 1)
        test[own[torch.randperm(len(own), generator=draws)[:count].numpy()]] = True
    return test
