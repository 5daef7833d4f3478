"""Fashion-MNIST from its official idx files, gzipped or not: 28x28 grey, ten classes."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np

from s6mod.data.arrays import as_labels, read_from
from s6mod.data.source import Block, Source, Split, rows_of_block
from s6mod.errors import DataError

CLASS_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
MAX_SIDE = 1024
MAX_COUNT = 10_000_000
DAMAGE = (OSError, EOFError, zlib.error)


def fashion_mnist_source(folder: Path) -> Source:
    """Fashion-MNIST from the folder that holds the four official files."""
    train, test = (_split(folder, prefix) for prefix in ("train", "t10k"))
    return Source("fashion-mnist", CLASS_NAMES, (3, 28, 28), train, test, "official files fashion-mnist")


def _split(folder: Path, prefix: str) -> Split:
    images, labels = (_find(folder, f"{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    with _open(labels) as stream:
        (count,) = _header(stream, labels, 1)
        content = _read(stream, count, labels)
        _expect_end(stream, labels)
    with read_from(labels):
        ids = as_labels(np.frombuffer(content, np.uint8), len(CLASS_NAMES)).numpy()

    def blocks() -> Iterator[Block]:
        with _open(images) as stream:
            number, height, width = _header(stream, images, 3)
            if (number, height, width) != (count, 28, 28):
                raise DataError(
                    f"expected {count} images of 28x28 in {images}, one for each label, "
                    f"got {number} of {height}x{width}; fetch the official file"
                )
            rows = rows_of_block(3 * 28 * 28)
            for start in range(0, count, rows):
                size = min(rows, count - start)
                grey = np.frombuffer(_read(stream, size * 28 * 28, images), np.uint8).reshape(-1, 1, 28, 28)
                yield grey.repeat(3, axis=1), ids[start : start + size]
            _expect_end(stream, images)

    return Split(count, blocks)


def _find(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(f"expected {name} or {name}.gz in {folder}, got neither; fetch the official file")


def _open(file: Path) -> IO[bytes]:
    try:
        return cast(IO[bytes], gzip.open(file)) if file.suffix == ".gz" else file.open("rb")
    except OSError as error:
        raise DataError(f"expected a readable file {file}, got: {error.strerror}; check it") from None


def _header(stream: IO[bytes], file: Path, dimensions: int) -> list[int]:
    """The sizes that an idx file of bytes says it has; absurd ones are refused before memory is asked for."""
    magic = _read(stream, 4, file)
    if magic != bytes((0, 0, 8, dimensions)):
        raise DataError(
            f"expected an idx file of bytes in {dimensions} dimensions in {file}, got another file; fetch it"
        )
    sizes = [int.from_bytes(_read(stream, 4, file), "big") for _ in range(dimensions)]
    if not 0 < sizes[0] <= MAX_COUNT or any(not 0 < side <= MAX_SIDE for side in sizes[1:]):
        raise DataError(f"expected sensible sizes in {file}, got {sizes}; fetch the official file")
    return sizes


def _read(stream: IO[bytes], count: int, file: Path) -> bytes:
    try:
        content = stream.read(count)
    except DAMAGE:
        content = b""
    if len(content) != count:
        raise _fewer(file)
    return content


def _expect_end(stream: IO[bytes], file: Path) -> None:
    try:
        more = stream.read(1)
    except DAMAGE:  # gzip's checksum stands at the end
        raise _fewer(file) from None
    if more:
        raise DataError(f"expected the bytes that the header of {file} promises, got more; fetch the official file")


def _fewer(file: Path) -> DataError:
    return DataError(f"expected the bytes that the header of {file} promises, got fewer; fetch the official file")
