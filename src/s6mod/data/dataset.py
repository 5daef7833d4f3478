"""A data set: all training and test images with their labels, in memory, checked once at construction.

Images are uint8 and may live on a device; labels stay on the host, where streams and the replay memory's
bookkeeping read them. Where the images come from and in which order they are seen is decided elsewhere.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s6mod.data.arrays import Images, Labels, as_labels, as_uint8_images
from s6mod.errors import DataError
from s6mod.files import expanded


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
        plain = tuple(map(str, self.class_names))  # of NumPy texts or numbers too: names are hashed, and saved as texts
        object.__setattr__(self, "class_names", plain)
        check_class_names(self.name, self.class_names)
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

    @classmethod
    def from_path(
        cls,
        path: str | Path,
        *,
        size: int | None = None,
        test_fraction: float = 0.2,
        split_seed: int = 0,
        skip_bad: bool = False,
        name: str | None = None,
    ) -> "Dataset":
        """Own data: a folder of class folders, an ``.npz`` or a ``.csv`` file, or a file that ``save`` wrote."""
        from s6mod.data.own import name_of, own_source
        from s6mod.data.prepared import SUFFIX, read_prepared
        from s6mod.data.split import Reading

        path, reading = expanded(path), Reading(size, test_fraction, split_seed, skip_bad)
        if path.suffix != SUFFIX:
            return own_source(path, name or name_of(path), reading).dataset()
        if reading != Reading():
            raise DataError(f"expected the prepared file {path} alone, got options of reading it; prepare it anew")
        dataset = read_prepared(path)
        return replace(dataset, name=name or dataset.name)

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any,
        *,
        size: int | None = None,
        class_names: Sequence[str] | None = None,
        name: str = "torch",
    ) -> "Dataset":
        """A data set from two map-style PyTorch data sets of (image, label): Pillow images, tensors or arrays."""
        from s6mod.data.objects import read_torch

        return read_torch(train, test, size, class_names, name)

    @classmethod
    def from_huggingface(
        cls,
        data: Any,
        *,
        image: str = "image",
        label: str = "label",
        test: Any = None,
        size: int | None = None,
        test_fraction: float = 0.2,
        split_seed: int = 0,
        name: str = "huggingface",
    ) -> "Dataset":
        """A data set from a Hugging Face ``Dataset`` or ``DatasetDict``.

        ``image`` and ``label`` name columns. ``test`` is the test split or its name; None: the split "test" or
        "validation" of a ``DatasetDict``, else a share of each class.
        """
        from s6mod.data.objects import read_huggingface
        from s6mod.data.split import Reading

        reading = Reading(size, test_fraction, split_seed)
        return read_huggingface(data, (image, label), test, reading, name)

    def save(self, path: str | Path) -> None:
        """Write the data set as a prepared file; under its name in the data folder, ``s6mod train --data`` finds it."""
        from s6mod.data.prepared import prepare
        from s6mod.data.source import Source, Split

        def split(images: Tensor, labels: Tensor) -> Split:
            return Split(len(labels), lambda: iter([(images.cpu().numpy(), labels.numpy())]))

        file = expanded(path)
        train, test = split(self.train_images, self.train_labels), split(self.test_images, self.test_labels)
        prepare(Source(self.name, self.class_names, self.image_shape, train, test, "a Dataset in Python"), file)

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
        if {self.train_images.device, self.test_images.device} == {torch.device(device)}:
            return self  # and what it knows of itself
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
        return _error(self.name, expected, got, do)


def check_class_names(name: str, class_names: Sequence[str]) -> None:
    """Refuse class names that cannot be those of the data set ``name``."""
    if len(class_names) < 2:
        raise _error(name, "at least two classes", f"{len(class_names)}", "add images of another class")
    for class_name, count in Counter(class_names).items():
        if count > 1:
            raise _error(name, "class names that differ", f"{class_name!r} {count} times", "rename or join the classes")


def _error(name: str, expected: str, got: str, do: str) -> DataError:
    return DataError(f"data set {name!r}: expected {expected}, got {got}; {do}")
