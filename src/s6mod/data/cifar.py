"""CIFAR-10 and CIFAR-100 from the official python archives, unpacked.

Only reads what lies on disk. The number of images is not prescribed, so that an excerpt in the same layout can be
read as well; the number of classes is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s6mod.data.arrays import as_labels, read_from
from s6mod.data.pickles import as_text, read_pickle
from s6mod.data.source import Block, Source, Split
from s6mod.errors import DataError


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


def cifar_source(layout: Layout, folder: Path) -> Source:
    """CIFAR-10 or CIFAR-100 from the folder of the official archive."""
    class_names = _read_names(folder / layout.meta, layout)
    train = _split([_read_batch(folder / file, layout) for file in layout.train])
    test = _split([_read_batch(folder / layout.test, layout)])
    return Source(layout.name, class_names, (3, 32, 32), train, test, f"official files {layout.folder}")


def _split(parts: list[Block]) -> Split:
    def blocks() -> Iterator[Block]:
        while parts:
            yield parts.pop(0)  # kept by nobody here: a file's mapping ends when its block has been used

    return Split(sum(len(labels) for _, labels in parts), blocks)


def _read_names(path: Path, layout: Layout) -> tuple[str, ...]:
    names = _entry(read_pickle(path), layout.names_key, list, path)
    if len(names) != layout.num_classes or not all(isinstance(name, bytes | str) for name in names):
        raise DataError(
            f"expected {layout.num_classes} class names in {path}, got {len(names)} entries; "
            f"fetch the official {layout.folder}"
        )
    return tuple(as_text(name) for name in names)


def _read_batch(path: Path, layout: Layout) -> Block:
    """Images (N, 3, 32, 32) and labels (N,) of one file."""
    values = read_pickle(path)
    pixels = _entry(values, "data", np.ndarray, path)
    if pixels.ndim != 2 or pixels.shape[1] != 3 * 32 * 32:
        raise DataError(
            f"expected rows of 3072 pixels in {path}, got an array of shape {pixels.shape}; fetch the official file"
        )
    with read_from(path):
        labels = as_labels(_entry(values, layout.labels_key, list, path), layout.num_classes, len(pixels))
    return pixels.reshape(-1, 3, 32, 32), labels.numpy()


def _entry(values: dict[str, Any], key: str, kind: type, path: Path) -> Any:
    if not isinstance(values.get(key), kind):
        raise DataError(
            f"expected the {kind.__name__} {key!r} in {path}, got {', '.join(sorted(values)) or 'nothing'}; "
            "fetch the official python version"
        )
    return values[key]
