"""A person's own data by its path: which reader takes it, and what it is called."""

import hashlib
import os
import re
from pathlib import Path

from s6mod.data.csv_file import csv_source
from s6mod.data.folder import folder_source
from s6mod.data.npz import npz_source
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError

ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.\w+)$", re.IGNORECASE)
FILES = {".npz": npz_source, ".csv": csv_source}


def own_source(path: Path, name: str, reading: Reading) -> Source:
    """A source of an image folder, an ``.npz`` or a ``.csv`` file."""
    if path.is_dir():
        return folder_source(path, name, reading)
    if not path.exists():
        raise DataError(f"expected data in {path}, got nothing there; check the path")
    if path.suffix.lower() not in FILES:
        packed = ARCHIVE.search(path.name)
        advice = f"prepare an archive with s6mod data {path}" if packed else "bring the data into one of these forms"
        raise DataError(f"expected an image folder, an .npz or a .csv file, got {path}; {advice}")
    return FILES[path.suffix.lower()](path, name, reading)


def is_path(text: str) -> bool:
    """Whether a data set is given by its path and not by a name."""
    return "/" in text or text.startswith((".", "~")) or Path(text).suffix.lower() in (*FILES, ".safetensors")


def name_of(path: Path) -> str:
    """A name for the data at a path: its last part, without what a name cannot hold."""
    last = os.path.basename(os.path.abspath(path))
    stem = re.sub(r"\.(npz|csv|safetensors)$", "", ARCHIVE.sub("", last), flags=re.IGNORECASE)
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", stem).strip("-.+_") or "own"
    if stem.isascii():
        return name
    # What is left of other scripts may be the same for many: a mark keeps them apart.
    return f"{name}-{hashlib.sha256(os.fsencode(stem)).hexdigest()[:6]}"
