"""Image files with labels as a source: what image folders, tables of paths and Tiny-ImageNet have in common."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from s6mod.data.images import BadImageError, image_size, read_image
from s6mod.data.source import Block, Source, Split, rows_of_block
from s6mod.data.split import Reading, held_out
from s6mod.errors import DataError

Files = list[tuple[Path, int]]  # with their labels
DEFAULT_SIZE = 32
KEPT_SIZES = range(8, 97)  # sides that images keep if all of them share one


def files_source(
    name: str, class_names: tuple[str, ...], train: Files, test: Files | None, reading: Reading, origin: str
) -> Source:
    """A source of image files; without ``test`` a share of ``train`` is held out."""
    if test is None:
        labels = np.array([label for _, label in train], np.int64)
        mask = held_out(labels, class_names, reading.test_fraction, reading.split_seed)
        train, test = (
            [file for file, is_test in zip(train, mask, strict=True) if is_test == wanted] for wanted in (False, True)
        )
    for split, files in (("training", train), ("test", test)):
        present = {label for _, label in files}
        for label, class_name in enumerate(class_names):
            if label not in present:
                raise DataError(
                    f"expected a {split} image of every class in {origin}, got none of {class_name!r}; "
                    "add one, or drop the class"
                )
    side = reading.size or _common_side([file for file, _ in train + test])
    skipped: list[str] = []

    def split_of(files: Files) -> Split:
        return Split(len(files), lambda: _blocks(files, side, skipped if reading.skip_bad else None))

    return Source(name, class_names, (3, side, side), split_of(train), split_of(test), origin, skipped)


def refuse_link(path: Path) -> None:
    """A symbolic link may lead anywhere, a device or pipe may never end: neither is followed."""
    if path.is_symlink():
        raise DataError(f"expected plain files, got the symbolic link {path}; replace it by what it points at")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"expected plain files, got the device or pipe {path}; remove it")


def entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted by name, without what is hidden; links are refused."""
    found = sorted(folder / entry for entry in os.listdir(folder) if not entry.startswith("."))
    for path in found:
        refuse_link(path)
    return found


def _blocks(files: Files, side: int, skipped: list[str] | None) -> Iterator[Block]:
    rows = rows_of_block(3 * side * side)
    for start in range(0, len(files), rows):
        images, labels = [], []
        for file, label in files[start : start + rows]:
            try:
                images.append(read_image(file, (side, side), str(file)))
                labels.append(label)
            except BadImageError:
                if skipped is None:
                    raise
                skipped.append(str(file))
        if images:
            yield np.stack(images), np.array(labels, np.int64)


def _common_side(files: list[Path]) -> int:
    """The side that all images share if they are small squares of one size, else the default."""
    sizes = set()
    for file in files:
        try:
            sizes.add(image_size(file))
        except BadImageError:
            continue  # told when it is read
        if len(sizes) > 1:
            return DEFAULT_SIZE
    height, width = sizes.pop() if sizes else (0, 0)
    return height if height == width and height in KEPT_SIZES else DEFAULT_SIZE
