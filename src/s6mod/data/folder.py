"""A folder of class folders, with or without ``train`` and ``test`` above them."""

from pathlib import Path

from s6mod.data.files import Files, entries, files_source
from s6mod.data.images import image_suffixes
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError

TEST_NAMES = ("test", "val")  # the first one there is
SPLIT_WORDS = {"train", "training", "test", "testing", "val", "valid", "validation"}  # no names of classes


def folder_source(path: Path, name: str, reading: Reading) -> Source:
    """A source of ``path/CLASS/*``, or of ``path/train/CLASS/*`` and ``path/test/CLASS/*`` (or ``val``)."""
    origin = f"image folder {path.name}"
    tests = [path / split for split in TEST_NAMES if (path / split).is_dir()]
    if (path / "train").is_dir() and not tests:
        raise DataError(
            f"expected test or val beside train in {path}, got neither; add one, or give {path / 'train'} to hold out "
            "a share of it"
        )
    if tests and not (path / "train").is_dir():
        raise DataError(f"expected train beside {tests[0].name} in {path}, got none; add it")
    entries(path)  # a link in place of a split is refused too
    top = path / "train" if tests else path
    class_names = tuple(entry.name for entry in entries(top) if entry.is_dir())
    if not class_names:
        raise DataError(
            f"expected a folder for each class in {top}, got none; sort the images into folders named by class"
        )
    if all(class_name.lower() in SPLIT_WORDS for class_name in class_names):
        raise DataError(
            f"expected a folder for each class in {top}, got the splits {', '.join(class_names)}; "
            "name them train and test"
        )
    train = _files(top, class_names)
    return files_source(name, class_names, train, _files(tests[0], class_names) if tests else None, reading, origin)


def _files(top: Path, class_names: tuple[str, ...]) -> Files:
    classes = [entry for entry in entries(top) if entry.is_dir()]
    labels = {class_name: label for label, class_name in enumerate(class_names)}
    for folder in classes:
        if folder.name not in labels:
            raise DataError(
                f"expected the classes of train in {top}, got a further one, {folder.name!r}; add it to train"
            )
    files: Files = []
    for folder in classes:
        images = image_files(folder)
        if not images:
            raise DataError(f"expected images in {folder}, got none; add some, or remove the empty class")
        files += [(file, labels[folder.name]) for file in images]
    return files


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, in an order that is the same on every machine."""
    found: list[Path] = []
    for entry in entries(folder):
        if entry.is_dir():
            found += image_files(entry)
        elif entry.suffix.lower() in image_suffixes():
            found.append(entry)
    return found
