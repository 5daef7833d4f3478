"""Files that are whole or not there, and never overwritten by accident; JSON and paths that may come from anywhere.

No torch, so that commands answer at once.
"""

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from s6mod.errors import ConfigError

DEEPEST = 100  # lists and mappings within each other; what we write has ten
STALE = 24 * 3600.0  # seconds after which nobody writes to a file aside any more
_ASIDE = re.compile(r"\..+\.[0-9a-f]+\.part", re.DOTALL)  # names that only ``aside`` gives, in this version or earlier


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace ``path``, once the content is on disk."""
    with aside(path) as place:
        _write(place, content)
        place.replace(path)


def write_new(path: Path, content: str | bytes) -> bool:
    """Write ``path`` if nothing is there; False if something is. Of many writers at once exactly one succeeds."""
    with aside(path) as place:
        _write(place, content)
        try:
            os.link(place, path)
        except FileExistsError:
            return False
        return True


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A place beside ``path``, for this call alone, to write what is then renamed; whatever is left there goes.

    Its name is random: two containers on one volume may have the same process numbers.
    """
    place = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        yield place
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the one that the user knows
        raise
    finally:
        with suppress(OSError):
            place.unlink()


def clear_aside(folder: Path, older_than: float = STALE) -> None:
    """Remove what processes that were killed have left aside in a folder, once it is so many seconds old."""
    with suppress(OSError):  # there is none
        for place in folder.iterdir():
            with suppress(OSError):
                if _ASIDE.fullmatch(place.name) and time.time() - place.lstat().st_mtime >= older_than:
                    place.unlink()


def usable(path: str | Path) -> Path:
    """The path, if there could be a file of that name at all."""
    try:
        os.stat(path)
    except ValueError as error:  # NUL, or a letter that no name of a file has
        why = str(error)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return Path(path)
        why = f"{error.strerror}, {len(str(path))} characters"
    else:
        return Path(path)
    name = repr(str(path)[:60]) + " ..." * (len(str(path)) > 60)
    raise ConfigError(f"expected a path that a file can have, got {name}: {why}; check the path")


def expanded(path: str | Path) -> Path:
    """The path with ``~`` as the home folder that it stands for."""
    try:
        return usable(Path(path).expanduser())
    except RuntimeError:  # many containers have users without one
        raise ConfigError(
            f"expected a home folder for {path}, got a user who has none; give the whole path, or set HOME"
        ) from None


def plain_file(path: Path) -> Path:
    """The path, unless it leads to a pipe or a device: those may have no end, and a folder may come from anywhere."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "a pipe or a device", str(path))
    return path


def read_json(path: Path) -> Any:
    """What a JSON file holds; OSError where there is none to read, ValueError as ``parse_json`` has it."""
    return parse_json(plain_file(path).read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """What JSON holds; ValueError for anything else, and for what is nested so deeply that nobody could walk it."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    layer = [content] if sum(map(text.count, opening)) > DEEPEST else []  # type: ignore[arg-type]
    for _ in range(DEEPEST):
        parts = (part.values() if isinstance(part, dict) else part for part in layer)
        layer = [part for group in parts for part in group if isinstance(part, dict | list)]
    if layer:
        raise ValueError("nested too deeply")
    return content


def why_not(error: OSError) -> tuple[str, str]:
    """Why something could not be written, and what to do about it, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full", "free some space and try again"
    return error.strerror or str(error), "choose a folder that can be written"


def _write(place: Path, content: str | bytes) -> None:
    with place.open("wb") as file:
        # Names of files that are no text where the process runs are written as the bytes that they are.
        file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
