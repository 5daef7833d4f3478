"""Files that are whole or not there, and never overwritten by accident; no torch, so that commands answer at once."""

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, content: str) -> None:
    """Replace ``path``: written aside, then renamed."""
    aside = _write_aside(path, content)
    try:
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_new(path: Path, content: str) -> bool:
    """Write ``path`` if nothing is there; False if something is. Of many writers at once exactly one succeeds."""
    aside = _write_aside(path, content)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return True


def _write_aside(path: Path, content: str) -> Path:
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # the one that the user knows
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    return aside
