"""Getting a data set ready: fetched or brought, unpacked aside, and prepared into one file under the data folder."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from s6mod.data.archives import is_archive, sole_folder, unpack, visible
from s6mod.data.download import Download, fetch
from s6mod.data.official import Official
from s6mod.data.own import own_source
from s6mod.data.prepared import prepare, prepared_file
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError
from s6mod.files import STALE, clear_aside
from s6mod.locks import alone_in


class Ticker(Protocol):
    """Whoever wants to see it go on."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Called with a verb and its object, what is done of it, and how much there is."""


def acquire_official(official: Official, root: Path, given: Path | None, skip_bad: bool, progress: Ticker) -> list[str]:
    """Prepare a published data set from ``given`` (folder or archive), from official files under ``root``, or the net.

    Answers with the unreadable images that were passed over.
    """
    if given is not None or official.find(root) is not None:
        return _from_files(official, root, given or root, skip_bad, progress)
    folder = root / "downloads" / official.name
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        if prepared_file(root, official.name).is_file():  # by another command, while this one waited
            return []
        files = [_fetch(download, folder, progress) for download in official.downloads]
        skipped = _from_files(official, root, files[0] if is_archive(files[0]) else folder, skip_bad, progress)
        for file in files:  # the prepared file holds all that is in them
            file.unlink(missing_ok=True)
        with suppress(OSError):  # of others' files
            folder.rmdir()
            folder.parent.rmdir()
    return skipped


def acquire_own(path: Path, root: Path, name: str, reading: Reading, progress: Ticker) -> list[str]:
    """Prepare own data: an image folder, an ``.npz`` or ``.csv`` file, or an archive of one of these."""
    with _content(path, root) as content:
        if content == path:
            return _prepare(own_source(path, name, reading), root, progress)
        source = own_source(_inner(content), name, reading)
        return _prepare(replace(source, origin=f"archive {path.name}"), root, progress)


def _from_files(official: Official, root: Path, given: Path, skip_bad: bool, progress: Ticker) -> list[str]:
    with _content(given, root) as content:
        wrapped = official.find(content) is None and content.is_dir()
        return _prepare(official.source(sole_folder(content) if wrapped else content, skip_bad), root, progress)


def _fetch(download: Download, folder: Path, progress: Ticker) -> Path:
    return fetch(download, folder, lambda done, total: progress(f"fetch {download.file_name}", done, total))


def _prepare(source: Source, root: Path, progress: Ticker) -> list[str]:
    done, total = 0, source.train.count + source.test.count

    def watch(images: int) -> None:
        nonlocal done
        done += images
        progress(f"prepare {source.name}", done, total)

    prepare(source, prepared_file(root, source.name), watch)
    return source.skipped


@contextmanager
def _content(path: Path, root: Path) -> Iterator[Path]:
    """The path itself, or of an archive what it holds, in a folder that is gone afterwards."""
    _clear(root)
    if not path.exists():
        raise DataError(f"expected a folder or an archive, got {path}, which is not there; check the path")
    if not is_archive(path):
        yield path
        return
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=root) as folder:
        unpack(path, Path(folder))
        yield Path(folder)


def _clear(root: Path) -> None:
    """Remove what commands that were killed have left, a day later: what is written to now is younger."""
    clear_aside(root)
    for path in root.glob(".unpacked-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                shutil.rmtree(path)


def _inner(folder: Path) -> Path:
    """The data in an unpacked archive: one file, or a folder."""
    folder = sole_folder(folder)
    tables = [path for path in visible(folder) if path.suffix.lower() in (".csv", ".npz")]
    return tables[0] if len(tables) == 1 else folder
