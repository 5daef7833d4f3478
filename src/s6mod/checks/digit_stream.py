"""What a method under test learns: a few small digits in a stream that is short and odd.

How they are learned is not decided here.
"""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from s6mod.data.dataset import Dataset
from s6mod.data.digits import load_digits
from s6mod.methods import Batch

SHAPE = (3, 12, 12)  # of the images: the last map has 2x2 places, so that BatchNorm can bear a batch of one
NUM_CLASSES = 6
MEMORY_SIZE = 5
# The labels of the stream's batches: one class in a batch, one image in a batch, and class 4 first seen within a task.
LABELS = ((0, 1), (1, 1), (2, 3), (3,), (4, 0))
TASK_ENDS = frozenset({2})  # after so many batches
PREFIX = 3  # batches: they end within a task, after a boundary
EQUAL_BATCHES = (2, 4)  # two positions of the last task with batches of one size


@cache
def _digits() -> Dataset:
    return load_digits(SHAPE[1])


def two_digits(split: str) -> Batch:
    """All zeros and ones of a split, ``train`` or ``test``."""
    images, labels = (getattr(_digits(), f"{split}_{what}") for what in ("images", "labels"))
    return Batch(images[labels < 2], labels[labels < 2])


def stream() -> list[Batch]:
    """The batches of ``LABELS``, made anew; each sample is another image."""
    digits = _digits()
    images = {label: iter(digits.train_images[digits.train_labels == label][:9]) for label in range(NUM_CLASSES)}
    return [Batch(torch.stack([next(images[y]) for y in batch]), torch.tensor(batch)) for batch in LABELS]


def true_for_now() -> Iterator[Batch]:
    """The first batches as parts of two long arrays in which all is false but the batch at hand."""
    images, labels = (torch.cat([getattr(batch, what) for batch in stream()]) for what in ("images", "labels"))
    false_images, false_labels = 255 - images, (labels + 1) % NUM_CLASSES
    stop = 0
    for batch in stream()[:PREFIX]:
        start, stop = stop, stop + len(batch.labels)
        images.copy_(false_images)
        labels.copy_(false_labels)
        images[start:stop], labels[start:stop] = batch.images, batch.labels
        yield Batch(images[start:stop], labels[start:stop])


def samples(images: Tensor, labels: Tensor) -> set[tuple[bytes, int]]:
    """Images with their labels, to be looked up."""
    return {(x.numpy().tobytes(), int(y)) for x, y in zip(images, labels, strict=True)}
