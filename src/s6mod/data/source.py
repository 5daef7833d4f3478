"""What is read, said in one way for every format: two splits, each a series of blocks of images with labels.

A reader (official files, a folder, a table, arrays) describes itself as a :class:`Source`. What becomes of it, a data
set in memory or a prepared file, is not its business. Blocks are read when they are asked for, so a set may pass
through that is larger than memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s6mod.data.dataset import Dataset, check_class_names

Block: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 3, H, W), labels (n,)
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Split:
    """One split of a source."""

    count: int  # images at the most; fewer come where unreadable ones are skipped
    blocks: Callable[[], Iterator[Block]]  # may be called once


@dataclass(frozen=True)
class Source:
    """Everything that is known about a data set before its images are read."""

    name: str
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]  # (3, H, W) of every block
    train: Split
    test: Split
    origin: str  # where it comes from, in words
    skipped: list[str] = field(default_factory=list)  # unreadable images passed over so far

    def __post_init__(self) -> None:
        check_class_names(self.name, self.class_names)

    @property
    def nbytes(self) -> int:
        """Bytes of all images, at the most."""
        return (self.train.count + self.test.count) * prod(self.image_shape)

    def dataset(self) -> Dataset:
        """Read everything into memory."""
        train, test = self._collect(self.train), self._collect(self.test)
        return Dataset(self.name, *train, *test, self.class_names)

    def _collect(self, split: Split) -> tuple[Tensor, Tensor]:
        images = np.empty((split.count, *self.image_shape), np.uint8)
        labels, done = [], 0
        for block, of_block in split.blocks():
            labels.append(of_block)
            if len(block) == split.count and block.flags.writeable:  # all of it, and ours to keep
                images = block
            else:
                images[done : done + len(block)] = block
            done += len(block)
        return torch.from_numpy(images[:done]), torch.from_numpy(np.concatenate([np.empty(0, np.int64), *labels]))


def rows_of_block(row_bytes: int) -> int:
    """Rows that one block should have, so that blocks stay small beside any data set."""
    return max(1, BLOCK_BYTES // row_bytes)
