"""Tiny-ImageNet from its official folder: JPEG files of 64x64 pixels, 200 classes, the validation split as test split.

Labels are line numbers in ``wnids.txt``; ``words.txt`` has the names; ``val/val_annotations.txt`` has the classes of
the validation images. The official test split has no labels and is not used.
"""

from collections import Counter
from pathlib import Path

from s6mod.data.files import Files, entries, files_source, refuse_link
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError


def tiny_imagenet_source(folder: Path, skip_bad: bool) -> Source:
    """Tiny-ImageNet from the folder of the official archive."""
    wnids = [line.strip() for line in _lines(folder / "wnids.txt") if line.strip()]
    train: Files = []
    for label, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        refuse_link(images.parent)
        refuse_link(images)
        if not images.is_dir():
            raise DataError(f"expected the images of class {wnid} in {images}, got no such folder; unpack it again")
        train += [(file, label) for file in entries(images) if file.suffix == ".JPEG"]
    test = _validation(folder / "val", {wnid: label for label, wnid in enumerate(wnids)})
    reading = Reading(size=64, skip_bad=skip_bad)
    names = _names(folder / "words.txt", wnids)
    return files_source("tiny-imagenet", names, train, test, reading, "official files tiny-imagenet-200")


def _validation(folder: Path, labels: dict[str, int]) -> Files:
    files: Files = []
    for line in _lines(folder / "val_annotations.txt"):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0].strip()
        if wnid not in labels or "/" in name:
            raise DataError(
                f"expected a file name and a class of wnids.txt in each line of {folder / 'val_annotations.txt'}, "
                f"got {line[:60]!r}; unpack it again"
            )
        file = folder / "images" / name
        refuse_link(file)
        if not file.is_file():
            raise DataError(f"expected the validation image {file}, got no such file; unpack it again")
        files.append((file, labels[wnid]))
    return files


def _names(file: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first word for each class; where two classes share one, with the class id."""
    words = dict(line.split("\t", 1) for line in _lines(file) if "\t" in line)
    names = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    count = Counter(names)
    return tuple(f"{name} ({wnid})" if count[name] > 1 else name for name, wnid in zip(names, wnids, strict=True))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"expected the file {file}, got: {error.strerror}; unpack the archive again") from None
    except UnicodeDecodeError:
        raise DataError(f"expected text in {file}, got something else; unpack the archive again") from None
