"""CIFAR-10 and CIFAR-100 from the official python archives, unpacked.

Only reads what lies on disk. The number of images is not prescribed, so that an excerpt in the same layout can be
read as well; the number of classes is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s6mod.data.arrays import as_labels
from s6mod.data.dataset import Dataset
from s6mod.data.pickles import as_text, read_pickle
from s6mod.errors import DataError, InputError


@dataclass(frozen=True)
class Layout:
    """Where an official archive keeps what."""

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    names_key: str
    num_classes: int


CIFAR10 = Layout(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    num_classes=10,
)
CIFAR100 = Layout(
    name="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    num_classes=100,
)


def load_cifar(layout: Layout, root: Path) -> Dataset:
    """CIFAR-10 or CIFAR-100 from ``root``, which is the archive's folder or holds it."""
    folder = _find_folder(layout, root)
    class_names = _read_names(folder / layout.meta, layout)
    parts = [_read_batch(folder / file, layout) for file in layout.train]
    train_images, train_labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    test_images, test_labels = _read_batch(folder / layout.test, layout)
    return Dataset(layout.name, train_images, train_labels, test_images, test_labels, class_names)


def _find_folder(layout: Layout, root: Path) -> Path:
    for folder in (root / layout.folder, root):
        if (folder / layout.meta).is_file():
            return folder
    raise DataError(
        f"expected {layout.name} in {root / layout.folder}, got no file {layout.meta} there; "
        f"unpack the official {layout.folder} archive into {root}, or set root"
    )


def _read_names(path: Path, layout: Layout) -> tuple[str, ...]:
    names = _entry(read_pickle(path), layout.names_key, list, path)
    if len(names) != layout.num_classes or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(
            f"expected {layout.num_classes} class names in {path}, got {len(names)} entries; "
            f"fetch the official {layout.folder}"
        )
    return tuple(as_text(name) for name in names)


def _read_batch(path: Path, layout: Layout) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) uint8 and labels (N,) of one file."""
    values = read_pickle(path)
    pixels = _entry(values, "data", np.ndarray, path)
    if pixels.ndim != 2 or pixels.shape[1] != 3 * 32 * 32:
        raise DataError(
            f"expected rows of 3072 pixels in {path}, got an array of shape {pixels.shape}; fetch the official file"
        )
    try:
        labels = as_labels(_entry(values, layout.labels_key, list, path), layout.num_classes, len(pixels))
    except InputError as error:
        raise DataError(f"{path}: {error}") from None
    # A copy: the array lies on the bytes of the file, which cannot be written to.
    return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy()), labels


def _entry(values: dict[str, Any], key: str, kind: type, path: Path) -> Any:
    if not isinstance(values.get(key), kind):
        raise DataError(
            f"expected the {kind.__name__} {key!r} in {path}, got {', '.join(sorted(values)) or 'nothing'}; "
            "fetch the official python version"
        )
    return values[key]
