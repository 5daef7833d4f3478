"""Arrays in a NumPy ``.npz`` file, read row by row: neither a pickled object nor more memory than a block."""

import zipfile
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from s6mod.data.archives import DAMAGE, refuse_bomb
from s6mod.data.arrays import CHANNELS, as_labels, as_uint8_images, read_from
from s6mod.data.pickles import as_text
from s6mod.data.source import Block, Source, Split, rows_of_block
from s6mod.data.split import LEAST_SIDE, Reading, held_out
from s6mod.errors import DataError

Blocks = Callable[[], Iterator[Block]]
WHOLE = ("images", "labels")
BROKEN = (*DAMAGE, OSError, KeyError, ValueError, RuntimeError)  # as a damaged archive or array may fail
PARTS = ("train_images", "train_labels", "test_images", "test_labels")


def npz_source(path: Path, name: str, reading: Reading) -> Source:
    """A source of ``train_images``, ``train_labels``, ``test_images``, ``test_labels``, or of ``images``, ``labels``.

    Images are (N, C, H, W), (N, H, W, C) or (N, H, W), uint8 or floats in [0, 1]; ``class_names`` may be added.
    """
    if reading.size is not None:
        raise DataError(f"expected no size for {path}, whose images are used as they are, got {reading.size}; drop it")
    with _Archive(path) as archive:
        in_parts = bool(archive.keys & set(PARTS)) and not set(WHOLE) <= archive.keys
        keys = PARTS if in_parts or set(PARTS) <= archive.keys else WHOLE
        if missing := [key for key in keys if key not in archive.keys]:
            raise DataError(
                f"expected the arrays {', '.join(PARTS)} or {', '.join(WHOLE)} in {path}, "
                f"got {', '.join(sorted(archive.keys)) or 'none'}; add {', '.join(missing)}"
            )
        labels = [archive.labels(key) for key in keys[1::2]]
        class_names = archive.class_names(np.unique(np.concatenate(labels)))
        shapes = {archive.image_shape(key, len(part)) for key, part in zip(keys[::2], labels, strict=True)}
        if len(shapes) > 1:
            raise DataError(f"expected training and test images of one shape in {path}, got {shapes}; resize one")
    origin, shape = f"arrays {path.name}", shapes.pop()
    if min(shape[1:]) < LEAST_SIDE:
        raise DataError(
            f"expected images of at least {LEAST_SIDE}x{LEAST_SIDE} pixels in {path}, got {shape[1]}x{shape[2]}; "
            "enlarge them"
        )
    if keys == PARTS:
        splits = [Split(len(part), _reader(path, key, part, None)) for key, part in zip(keys[::2], labels, strict=True)]
    else:
        test = held_out(labels[0], class_names, reading.test_fraction, reading.split_seed)
        splits = [Split(int(m.sum()), _reader(path, "images", labels[0], m)) for m in (~test, test)]
    return Source(name, class_names, shape, splits[0], splits[1], origin)


def _reader(path: Path, key: str, labels: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> Blocks:
    """What yields the blocks of one array, or those of its rows that a mask (N,) names."""

    def blocks() -> Iterator[Block]:
        with _Archive(path) as archive:
            done = 0
            for block in archive.image_blocks(key):
                rows = slice(done, done + len(block))
                done += len(block)
                chosen = np.ones(len(block), np.bool_) if mask is None else mask[rows]
                yield block[chosen], labels[rows][chosen]

    return blocks


class _Archive:
    """An ``.npz`` file; every shape is checked against the bytes that are there before anything is allocated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
        except OSError as error:
            raise DataError(f"expected a readable file {path}, got: {error.strerror}; check the path") from None
        except DAMAGE:
            raise DataError(f"expected arrays saved by numpy.savez in {path}, got another file; save them so") from None
        refuse_bomb(path, sum(member.file_size for member in self.zip.infolist()))
        self.keys = {name.removesuffix(".npy") for name in self.zip.namelist() if name.endswith(".npy")}

    def __enter__(self) -> "_Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.zip.close()

    def labels(self, key: str) -> NDArray[np.int64]:
        with read_from(f"{key} in {self.path}"):
            return as_labels(self._whole(key)).numpy()

    def class_names(self, present: NDArray[np.int64]) -> tuple[str, ...]:
        """Those in the file, else the labels that are ``present``, which then leave no gap."""
        if "class_names" in self.keys:
            names = self._whole("class_names")
            if names.ndim != 1 or names.dtype.kind not in "USiu":
                raise DataError(
                    f"expected class_names as a row of texts in {self.path}, got {names.dtype} of shape {names.shape}; "
                    "save them so"
                )
            return tuple(as_text(name) if isinstance(name, bytes) else str(name) for name in names.tolist())
        gaps = np.flatnonzero(present != np.arange(len(present)))
        if len(gaps):
            raise DataError(
                f"expected labels 0..C-1 without gaps in {self.path}, got {present[-1]} but no {gaps[0]}; "
                "renumber the classes"
            )
        return tuple(map(str, present.tolist()))

    def image_shape(self, key: str, count: int) -> tuple[int, int, int]:
        """(3, H, W) of the images as they will be, of which there must be ``count``."""
        with self._stream(key) as stream:
            shape, dtype = self._header(stream, key)
        if shape[:1] != (count,):
            raise DataError(
                f"expected {count} images in {key} of {self.path}, one for each label, got {shape[0] if shape else 0}; "
                "match them"
            )
        one = _channels_first(np.zeros((1, *shape[1:]), dtype))
        if one.ndim != 4 or one.shape[1] not in CHANNELS:
            raise DataError(
                f"expected images (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3 in {key} of {self.path}, "
                f"got {shape}; reshape them"
            )
        with read_from(f"{key} in {self.path}"):
            _, channels, height, width = as_uint8_images(one).shape
        return channels, height, width

    def image_blocks(self, key: str) -> Iterator[NDArray[np.uint8]]:
        """The rows of an array of images, as uint8 (n, 3, H, W)."""
        with self._stream(key) as stream:
            shape, dtype = self._header(stream, key)
            row_bytes = prod(shape[1:]) * dtype.itemsize
            rows = rows_of_block(row_bytes)
            for start in range(0, shape[0], rows):
                number = min(rows, shape[0] - start)
                content = self._read(stream, number * row_bytes)
                block = np.frombuffer(content, dtype).reshape(number, *shape[1:])
                with read_from(f"{key} in {self.path}"):
                    yield as_uint8_images(_channels_first(block)).numpy()

    def _whole(self, key: str) -> NDArray[Any]:
        with self._stream(key) as stream:
            shape, dtype = self._header(stream, key)
            return np.frombuffer(self._read(stream, prod(shape) * dtype.itemsize), dtype).reshape(shape)

    def _stream(self, key: str) -> IO[bytes]:
        try:
            return self.zip.open(f"{key}.npy")
        except BROKEN:  # a password, an unknown compression, a damaged entry
            raise self._damaged() from None

    def _header(self, stream: IO[bytes], key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of the array that a stream begins with."""
        try:
            reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
            shape, fortran, dtype = reader(stream)
            whole = self.zip.getinfo(f"{key}.npy").file_size == stream.tell() + prod(shape) * dtype.itemsize
        except BROKEN:
            raise self._damaged() from None
        if dtype.hasobject or fortran:
            kind = "Python objects" if dtype.hasobject else "columns first"
            raise DataError(f"expected plain numbers, row after row, in {key} of {self.path}, got {kind}; save it anew")
        if not whole:
            raise self._damaged()
        return shape, dtype

    def _read(self, stream: IO[bytes], count: int) -> bytes:
        try:
            content = stream.read(count)
        except BROKEN:
            raise self._damaged() from None
        if len(content) != count:
            raise self._damaged()
        return content

    def _damaged(self) -> DataError:
        return DataError(f"expected whole arrays in {self.path}, got a truncated or damaged file; save it anew")


def _channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """(N, H, W) and (N, H, W, C) as (N, C, H, W)."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] not in CHANNELS and images.shape[3] in CHANNELS:
        return images.transpose(0, 3, 1, 2)
    return images
