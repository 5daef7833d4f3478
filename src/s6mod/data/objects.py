"""Data sets of other libraries, by what they can do and not by what they are: nothing of theirs is imported.

Read row by row into memory: images may be Pillow images, arrays, tensors, or the encoded bytes that Hugging Face keeps.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from s6mod.data.arrays import as_uint8_images, read_from
from s6mod.data.dataset import Dataset
from s6mod.data.images import pixels_of, read_image
from s6mod.data.split import Reading, held_out
from s6mod.errors import DataError

TEST_SPLITS = ("test", "validation", "val")
Row = Callable[[int], tuple[Any, Any]]  # image and label by position


def read_torch(train: Any, test: Any, size: int | None, class_names: Sequence[str] | None, name: str) -> Dataset:
    """A data set from two map-style data sets that yield (image, label)."""
    size = Reading(size).size  # one that is none is refused
    parts = []
    for split, data in (("train", train), ("test", test)):
        _require_rows(data, split)
        parts.append(_read(_pairs(data, split), range(len(data)), size, split))
    names = class_names if class_names is not None else getattr(train, "classes", None)
    return _join(parts[0], parts[1], names, name)


def read_huggingface(data: Any, columns: tuple[str, str], test: Any, reading: Reading, name: str) -> Dataset:
    """A data set from a ``datasets.Dataset`` or ``DatasetDict``."""
    train, test = _splits(data, test)
    image, label = columns
    for split, part in (("train", train), ("test", test)):
        if part is not None:
            _require_rows(part, split)
            known = list(getattr(part, "column_names", None) or columns)
            if missing := [column for column in columns if column not in known]:
                raise DataError(
                    f"expected the columns {image} and {label} in {split}, got {', '.join(known)}; "
                    f"say which one stands for {missing[0]}"
                )
    names = getattr((getattr(train, "features", None) or {}).get(label), "names", None)

    def read(part: Any, rows: Iterable[int], split: str) -> tuple[Tensor, list[Any]]:
        def row(position: int) -> tuple[Any, Any]:
            values = part[position]  # once: reading a row decodes its image
            return values[image], values[label]

        return _read(row, rows, reading.size, split)

    if test is not None:
        return _join(read(train, range(len(train)), "train"), read(test, range(len(test)), "test"), names, name)
    labels = list(train[label])
    names, ids = _numbered(labels, names)
    mask = held_out(ids, names, reading.test_fraction, reading.split_seed)
    rows = [np.flatnonzero(part).tolist() for part in (~mask, mask)]
    return _join(read(train, rows[0], "train"), read(train, rows[1], "train"), names, name)


def _pairs(data: Any, split: str) -> Row:
    def row(position: int) -> tuple[Any, Any]:
        values = data[position]
        if not isinstance(values, tuple | list) or len(values) < 2:
            raise DataError(
                f"expected (image, label) in row {position} of {split}, got {type(values).__name__}; "
                "wrap the data set in one that gives them"
            )
        return values[0], values[1]

    return row


def _splits(data: Any, test: Any) -> tuple[Any, Any]:
    if not isinstance(data, Mapping):
        return data, test
    if "train" not in data:
        raise DataError(f"expected a split 'train', got {', '.join(map(str, data))}; pass the split itself, and test=")
    if test is None:
        test = next((split for split in TEST_SPLITS if split in data), None)
    if isinstance(test, str):
        if test not in data:
            raise DataError(f"expected a split {test!r}, got {', '.join(map(str, data))}; name another as test=")
        return data["train"], data[test]
    return data["train"], test


def _require_rows(data: Any, split: str) -> None:
    iterates = isinstance(data, IterableDataset)  # which inherits a __getitem__ that does nothing
    if iterates or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(
            f"expected rows by number in {split}, got {type(data).__name__}, which only iterates; "
            "loop over it and give each batch to Learner.learn"
        )
    if len(data) == 0:
        raise DataError(f"expected rows in {split}, got none; pass a split that has some")


def _read(row: Row, rows: Iterable[int], size: int | None, split: str) -> tuple[Tensor, list[Any]]:
    """Images (N, 3, H, W) and labels of some rows, read once each."""
    positions = list(rows)
    images = torch.empty(0)
    labels = []
    for number, position in enumerate(positions):
        where = f"row {position} of {split}"
        image, label = row(position)
        pixels = _pixels(image, size, where)
        if number == 0:
            images = torch.empty((len(positions), *pixels.shape), dtype=torch.uint8)
        if pixels.shape != images.shape[1:]:
            raise DataError(
                f"expected images of one size, got {'x'.join(map(str, pixels.shape[1:]))} in {where} after "
                f"{'x'.join(map(str, images.shape[2:]))}; give size="
            )
        images[number] = torch.from_numpy(pixels)
        labels.append(label)
    return images, labels


def _pixels(image: Any, size: int | None, where: str) -> NDArray[np.uint8]:
    """The pixels (3, H, W) of an image in any of the forms that libraries give."""
    square = None if size is None else (size, size)
    if isinstance(image, Mapping) and (image.get("bytes") or image.get("path")):
        content = io.BytesIO(image["bytes"]) if image.get("bytes") else Path(image["path"])
        return read_image(content, square, where)
    if isinstance(image, Image.Image):
        return pixels_of(image, square, where)
    try:
        array = image if isinstance(image, Tensor) else np.asarray(image)
    except ValueError:  # lists of unequal lengths
        array = np.array(None)
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and not isinstance(array, Tensor) and array.shape[2] in (1, 3):
        array = array.transpose(2, 0, 1)  # arrays have their channels last, tensors first
    with read_from(where):
        pixels = as_uint8_images(array[None])[0].cpu().numpy()
    if square is None or pixels.shape[1:] == square:
        return pixels
    return pixels_of(Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))), square, where)


def _join(
    train: tuple[Tensor, list[Any]], test: tuple[Tensor, list[Any]], names: Sequence[str] | None, name: str
) -> Dataset:
    class_names, ids = _numbered(train[1] + test[1], names)
    cut = len(train[1])
    labels = torch.from_numpy(ids)
    return Dataset(name, train[0], labels[:cut].clone(), test[0], labels[cut:].clone(), class_names)


def _numbered(labels: list[Any], names: Sequence[str] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Class names and a class id for each label: labels are ids already, or names."""
    if all(isinstance(label, str) for label in labels):
        class_names = tuple(names) if names is not None else tuple(sorted(set(labels)))
        numbers = {class_name: number for number, class_name in enumerate(class_names)}
        for label in labels:
            if label not in numbers:
                raise DataError(f"expected labels among the class names, got {label!r}; name every class")
        return class_names, np.array([numbers[label] for label in labels], np.int64)
    values = [label.item() if prod(getattr(label, "shape", (0,))) == 1 else label for label in labels]
    for position, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            got = f"an array {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
            raise DataError(
                f"expected class ids from 0 on or names as labels, got {got} at position {position}; convert them"
            )
    top = max(values)
    if names is not None and top >= len(names):
        raise DataError(f"expected labels in 0..{len(names) - 1}, got {top}; renumber or name the classes")
    if names is None and top >= len(values):
        raise DataError(
            f"expected labels 0..C-1 without gaps, got label {top} among {len(values)} images; renumber the classes"
        )
    return tuple(names) if names is not None else tuple(map(str, range(top + 1))), np.array(values, np.int64)
