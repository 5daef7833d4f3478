"""Data sets by name: which there are, where they lie, and how a configuration says which one is meant."""

import os
import re
import shlex
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, field_validator

from s6mod.config import Config, nearest
from s6mod.data.dataset import Dataset
from s6mod.data.digits import load_digits
from s6mod.data.official import OFFICIAL
from s6mod.data.own import is_path, name_of, own_source
from s6mod.data.prepared import SUFFIX, Description, describe, prepared_file, read_prepared
from s6mod.data.split import Reading, held_out
from s6mod.errors import ConfigError, DataError
from s6mod.files import expanded

DIGITS = "digits"  # ships with scikit-learn: nothing to look for
known: tuple[str, ...] = tuple(sorted([DIGITS, *OFFICIAL]))


class DataConfig(Config):
    """Which data set, and where it lies."""

    name: str = Field("digits", description="name of the data set")
    root: str | None = Field(
        None,
        description="folder with data sets, or own data itself; null: S6MOD_DATA if set, else ~/.cache/s6mod/data",
    )
    size: int | None = Field(
        None, ge=8, description="own image files: side they are resized to; null: their own if all share one, else 32"
    )
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="own data without a test split: share of each class that is held out"
    )
    split_seed: int = Field(0, ge=0, description="own data without a test split: which share")
    held_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each class's training images that is kept out of the stream and takes the place of the "
        "test images, by the run's seed: to choose settings by",
    )

    @field_validator("name")
    @classmethod
    def _wellformed(cls, name: str) -> str:
        return checked_name(name)

    def load(self) -> Dataset:
        """The data set, its images on the host."""
        return load(self.name, self.root, self._reading)

    def count_classes(self) -> int | None:
        """How many classes own data has, prepared or not, before its images are read; None: it is not own data."""
        place, file = _place(self.name, self.root)
        if self.name not in known and file.is_file():
            return len(describe(file).class_names)
        return len(own_source(place, self.name, self._reading).class_names) if _is_own(self.name, self.root) else None

    @property
    def _reading(self) -> Reading:
        return Reading(self.size, self.test_fraction, self.split_seed)

    def seen_by(self, dataset: Dataset, seed: int) -> Dataset:
        """The data set as a run with this seed sees it: with images held out, its test images are not looked at."""
        if not self.held_out:
            return dataset
        labels, images = dataset.train_labels, dataset.train_images
        out = torch.from_numpy(held_out(labels.numpy(), dataset.class_names, self.held_out, seed))
        stream, judged = ((out == side).nonzero().flatten() for side in (False, True))
        return replace(
            dataset,
            train_images=images[stream.to(images.device)],
            train_labels=labels[stream],
            test_images=images[judged.to(images.device)],
            test_labels=labels[judged],
        )


@dataclass(frozen=True)
class Entry:
    """One line of the inventory."""

    name: str
    state: str  # built in, prepared, official files, damaged, not here
    about: Description | None  # of what is prepared
    nbytes: int


def load(name: str, root: str | Path | None = None, reading: Reading | None = None) -> Dataset:
    """The data set ``name``, its images on the host; it is looked for under ``root`` (None: ``default_root()``).

    A prepared file comes first, then official files, then ``root`` itself as own data, read as ``reading`` says.
    """
    plain = reading in (None, Reading())
    if name == DIGITS and plain:
        return load_digits()
    place, file = _place(name, root)
    if _is_own(name, root):
        dataset = own_source(place, name, reading or Reading()).dataset()
        _advise(str(place), None, f", and then with --data {name}")
        return dataset
    if not plain:
        raise ConfigError(
            f"expected size, test_fraction and split_seed with the path of own data, got them with {name!r}; "
            "drop them, or give them to s6mod data"
        )
    if file.is_file():
        return read_prepared(file)
    if name in OFFICIAL:
        dataset = OFFICIAL[name].source(place).dataset()
        _advise(name, root)
        return dataset
    raise unknown(name, place)


def default_root() -> Path:
    """``$S6MOD_DATA`` if set, else ``~/.cache/s6mod/data``."""
    if given := os.environ.get("S6MOD_DATA"):
        return expanded(given)
    try:
        return expanded("~/.cache/s6mod/data")
    except ConfigError:
        raise ConfigError(
            "expected a home folder, which data sets lie under, got a user who has none; name a folder with "
            "--data-root or S6MOD_DATA"
        ) from None


def unknown(name: str, root: Path) -> ConfigError:
    """The answer to a name that names nothing."""
    names = {*known, *(path.stem for path in root.glob(f"*{SUFFIX}"))}
    hint = f"for the one in this folder write ./{name}" if Path(name).exists() else nearest(name, names)
    return ConfigError(f"expected a known data set, got {name!r}; {hint}")


def spell(text: str) -> dict[str, Any]:
    """The configuration that a user's word for a data set stands for: a name, or the path of own data."""
    if not is_path(text):
        return {"name": text}
    path = expanded(text).absolute()
    if name_of(path) == DIGITS:
        raise ConfigError(f"expected own data of another name than the built-in digits, got {text}; rename it")
    if path.suffix != SUFFIX:
        return {"name": name_of(path), "root": str(path)}
    if not path.is_file():
        raise DataError(f"expected a prepared file in {path}, got none there; check the path")
    if name_of(path) != path.stem:
        raise ConfigError(f"expected a prepared file with a name of letters, digits and . _ + -, got {path}; rename it")
    return {"name": path.stem, "root": str(path.parent)}


def checked_name(name: str) -> str:
    """``name`` if it can name a data set, and so files and folders."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ConfigError(
            f"expected a name of letters, digits and . _ + -, got {name!r}; give own data to --data by its path"
        )
    return name


def inventory(root: Path) -> list[Entry]:
    """What is known, and what of it is there."""
    own = sorted(path.stem for path in root.glob(f"*{SUFFIX}") if path.stem not in known and path.is_file())
    return [_entry(name, root) for name in (*known, *own)]


def _entry(name: str, root: Path) -> Entry:
    if name == DIGITS:
        return Entry(name, "built in", None, 0)
    file = prepared_file(root, name)
    if file.is_file():
        size = file.stat().st_size
        try:
            return Entry(name, "prepared", describe(file), size)
        except DataError:
            return Entry(name, "damaged", None, size)
    folder = OFFICIAL[name].find(root)
    if folder is None:
        return Entry(name, "not here", None, 0)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Entry(name, "official files", None, size)


def _place(name: str, root: str | Path | None) -> tuple[Path, Path]:
    """The folder where data sets are looked for, and the file of the one of that name if it is prepared."""
    place = default_root() if root is None else expanded(root)
    return place, prepared_file(place, name)


def _is_own(name: str, root: str | Path | None) -> bool:
    """Whether ``root`` is itself the data, which is read as it lies there."""
    place, file = _place(name, root)
    return name not in known and not file.is_file() and root is not None and not _holds_sets(place)


def _holds_sets(place: Path) -> bool:
    return place.is_dir() and (
        any(place.glob(f"*{SUFFIX}")) or any(official.find(place) is not None for official in OFFICIAL.values())
    )


def _advise(what: str, root: str | Path | None, then: str = "") -> None:
    command = shlex.join(["s6mod", "data", what, *([] if root is None else ["--data-root", str(root)])])
    warnings.warn(f"read the original files; later starts are faster after: {command}{then}", stacklevel=3)
