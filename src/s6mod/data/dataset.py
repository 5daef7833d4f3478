"""A data set: all training and test images with their labels, in memory, checked once at construction.

Images are uint8 and may live on a device; labels stay on the host, where streams and the replay memory's
bookkeeping read them. Where the images come from and in which order they are seen is decided elsewhere.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from s6mod.data.arrays import Images, Labels, as_labels, as_uint8_images
from s6mod.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Training and test split of one classification data set."""

    name: str
    train_images: Tensor  # (N, C, H, W) uint8
    train_labels: Tensor  # (N,) int64, on the host
    test_images: Tensor  # (M, C, H, W) uint8
    test_labels: Tensor  # (M,) int64, on the host
    class_names: tuple[str, ...]  # the label is the position

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise self._error("at least two classes", f"{self.num_classes}", "add images of another class")
        for split, images, labels in (
            ("training", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            self._check_split(split, images, labels)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            got = f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            raise self._error("training and test images of one shape", got, "resize one of them")

    @classmethod
    def from_arrays(
        cls,
        train_images: Images,
        train_labels: Labels,
        test_images: Images,
        test_labels: Labels,
        class_names: Sequence[str] | None = None,
        name: str = "arrays",
    ) -> "Dataset":
        """A data set from NumPy or torch arrays: images (N, C, H, W), uint8 or float in [0, 1], integer labels.

        Grey images are repeated to three channels. Classes without ``class_names`` are named by their number. All
        is copied: what is written into the arrays later does not reach the data set.
        """
        train, test = (as_uint8_images(x).clone() for x in (train_images, test_images))
        num_classes = None if class_names is None else len(class_names)
        train_y = as_labels(train_labels, num_classes, len(train)).clone()
        test_y = as_labels(test_labels, num_classes, len(test)).clone()
        if class_names is None:
            top = max(int(train_y.max()), int(test_y.max()))
            if top >= len(train_y):  # before a name is made for each of perhaps billions of numbers
                raise DataError(
                    f"expected labels 0..C-1 without gaps, got label {top} among {len(train_y)} training images; "
                    "renumber the classes"
                )
            class_names = [str(number) for number in range(top + 1)]
        return cls(name, train, train_y, test, test_y, tuple(class_names))

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        _, channels, height, width = self.train_images.shape
        return channels, height, width

    def to(self, device: str | torch.device) -> "Dataset":
        """The same data set with its images on ``device``; labels stay on the host."""
        return replace(self, train_images=self.train_images.to(device), test_images=self.test_images.to(device))

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that name the contents (images, labels, class names), wherever they lie."""
        sha = hashlib.sha256(repr(self.class_names).encode())
        for tensor in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            sha.update(repr((str(tensor.dtype), tuple(tensor.shape))).encode())
            sha.update(tensor.cpu().contiguous().numpy().data)
        return sha.hexdigest()[:12]

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.train_labels)} training and {len(self.test_labels)} test images "
            f"of {self.num_classes} classes, {'x'.join(map(str, self.image_shape))}, on {self.train_images.device})"
        )

    def _check_split(self, split: str, images: Tensor, labels: Tensor) -> None:
        if images.ndim != 4 or images.dtype != torch.uint8 or images.numel() == 0:
            got = f"{images.dtype} {tuple(images.shape)}"
            raise self._error(
                f"{split} images as non-empty uint8 (N, C, H, W)", got, "build it with Dataset.from_arrays"
            )
        if labels.ndim != 1 or labels.dtype != torch.int64 or labels.device.type != "cpu":
            got = f"{labels.dtype} {tuple(labels.shape)} on {labels.device}"
            raise self._error(f"{split} labels as int64 (N,) on the host", got, "build it with Dataset.from_arrays")
        if len(images) != len(labels):
            got = f"{len(images)} images and {len(labels)} labels"
            raise self._error(f"one label for each {split} image", got, "pass as many labels as images")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= self.num_classes:
            wrong = low if low < 0 else high
            raise self._error(
                f"{split} labels in 0..{self.num_classes - 1}", f"{wrong}", "renumber or name the classes"
            )
        missing = torch.bincount(labels, minlength=self.num_classes).eq(0)
        if missing.any():
            label = int(missing.int().argmax())
            got = f"none for class {label} ({self.class_names[label]!r})"
            raise self._error(f"a {split} image of every class", got, "add one or drop the class")

    def _error(self, expected: str, got: str, do: str) -> DataError:
        return DataError(f"data set {self.name!r}: expected {expected}, got {got}; {do}")
