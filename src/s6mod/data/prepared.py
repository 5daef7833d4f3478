"""A data set prepared once: one safetensors file that later starts map into memory instead of reading it again.

Images and labels are the tensors, everything else is metadata. The file is written block by block, aside, and renamed
when it is whole; a checksum over all of it finds a changed byte. Equal contents give equal files.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from s6mod.data.dataset import Dataset
from s6mod.data.source import Source, Split
from s6mod.errors import DataError
from s6mod.files import aside, parse_json, plain_file, why_not

FORMAT = "s6mod data 1"
SUFFIX = ".safetensors"
LEAF, THREADS = 1 << 20, 4  # bytes that are hashed at once on each thread
MAX_HEADER = 1 << 26
SPLITS = ("train", "test")
Watch = Callable[[int], None]  # called with the number of images just done


@dataclass(frozen=True)
class Description:
    """What a prepared file says about itself."""

    name: str
    class_names: tuple[str, ...]
    counts: tuple[int, int]  # training and test images
    image_shape: tuple[int, int, int]
    origin: str
    checksum: str


def prepared_file(root: Path, name: str) -> Path:
    """Where the data set ``name`` lies if it has been prepared under ``root``."""
    return root / f"{name}{SUFFIX}"


def prepare(source: Source, path: Path, watch: Watch = lambda done: None) -> None:
    """Read ``source`` into the file ``path``, which appears whole and checked or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as place:
            with place.open("wb") as file:
                _write(source, file, watch)
            _seal(place)
            _open(place)  # refuses what is no data set, such as a class that lost all its images
            place.replace(path)
    except OSError as error:
        why, todo = why_not(error)
        raise DataError(
            f"expected to write {source.nbytes:,} bytes to {path}, but {why}; nothing was kept; {todo}"
        ) from None


def read_prepared(path: Path) -> Dataset:
    """The data set in a prepared file, mapped into memory; writing to its tensors leaves the file as it is."""
    if describe(path).checksum != _checksum(path):
        raise _damaged(path)
    return _open(path)


def describe(path: Path) -> Description:
    """What a prepared file holds, by its header alone."""
    try:
        header = parse_json(_read_header(path))
        metadata = header["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError
        about = parse_json(metadata["about"])
        shapes = [header[f"{split}_images"]["shape"] for split in SPLITS]
        return Description(
            str(about["name"]),
            tuple(map(str, about["class_names"])),
            (shapes[0][0], shapes[1][0]),
            (shapes[0][1], shapes[0][2], shapes[0][3]),
            str(about["origin"]),
            str(metadata["sha256"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise _damaged(path) from None


def _write(source: Source, file: BinaryIO, watch: Watch) -> None:
    """Images as they come, then labels; the header last, in the room that was left for it."""
    room = len(_header(source, source.train.count, source.test.count)) + 8  # counts can only become smaller
    file.seek(8 + room)
    labels = [_write_images(file, split, watch) for split in (source.train, source.test)]
    for of_split in labels:
        file.write(of_split.tobytes())
    header = _header(source, len(labels[0]), len(labels[1]))
    file.seek(0)
    file.write(room.to_bytes(8, "little") + header.ljust(room))


def _write_images(file: BinaryIO, split: Split, watch: Watch) -> NDArray[np.int64]:
    labels = [np.empty(0, np.int64)]
    for images, of_block in split.blocks():
        file.write(np.ascontiguousarray(images).data)
        labels.append(of_block.astype("<i8"))
        watch(len(images))
    return np.concatenate(labels)


def _header(source: Source, *counts: int) -> bytes:
    """The JSON header of safetensors, with zeros for the checksum."""
    about = {"name": source.name, "class_names": source.class_names, "origin": source.origin}
    metadata = {"format": FORMAT, "sha256": "0" * 64, "about": json.dumps(about)}
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for kind, dtype, shape in (("images", "U8", source.image_shape), ("labels", "I64", ())):
        for split, count in zip(SPLITS, counts, strict=True):
            end = offset + count * prod(shape) * (8 if dtype == "I64" else 1)
            header[f"{split}_{kind}"] = {"dtype": dtype, "shape": [count, *shape], "data_offsets": [offset, end]}
            offset = end
    text = json.dumps(header).encode()
    return text.ljust(-(-len(text) // 8) * 8)


def _seal(path: Path) -> None:
    """Write the checksum in its place, and see that everything is on disk."""
    place = _read_header(path).index(b'"sha256": "') + len(b'"sha256": "')
    checksum = _checksum(path)
    with path.open("r+b") as file:
        file.seek(8 + place)
        file.write(checksum.encode())
        file.flush()
        os.fsync(file.fileno())


def _checksum(path: Path) -> str:
    """SHA-256 of the header, the checksum in it blanked, and of the SHA-256 of each stretch of what follows."""
    header = _read_header(path)
    blank = re.sub(rb'"sha256": "[0-9a-f]{64}"', b'"sha256": "%b"' % (b"0" * 64), header, count=1)
    with path.open("rb", buffering=0) as file:

        def leaf(start: int) -> bytes:
            return hashlib.sha256(os.pread(file.fileno(), LEAF, start)).digest()

        starts = range(8 + len(header), os.fstat(file.fileno()).st_size, LEAF)
        if len(starts) > 1:
            with ThreadPoolExecutor(THREADS) as pool:
                leaves = list(pool.map(leaf, starts))
        else:  # without threads: each takes 8 MB of addresses, and where there are fewer, Python may wait for ever
            leaves = list(map(leaf, starts))
        return hashlib.sha256(blank + b"".join(leaves)).hexdigest()


def _read_header(path: Path) -> bytes:
    try:
        with plain_file(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= MAX_HEADER else b""
    except OSError as error:
        raise DataError(f"expected a prepared data set in {path}, got: {error.strerror}; check the path") from None
    if not header or len(header) != length:
        raise _damaged(path)
    return header


def _open(path: Path) -> Dataset:
    about = describe(path)
    try:
        with safe_open(path, "pt") as file:
            images = [file.get_tensor(f"{split}_images") for split in SPLITS]
            labels = [file.get_tensor(f"{split}_labels").clone() for split in SPLITS]
    except SafetensorError:
        raise _damaged(path) from None
    return Dataset(about.name, images[0], labels[0], images[1], labels[1], about.class_names)


def _damaged(path: Path) -> DataError:
    return DataError(
        f"expected a data set as it was prepared in {path}, got a changed or damaged file; remove it and prepare again "
        "with s6mod data"
    )
