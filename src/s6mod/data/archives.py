"""Unpacking zip and tar archives that may be hostile: nothing is written outside the target, nothing without end.

Only plain files and folders are unpacked, each under its own name below a fresh folder; owners, modes and times are
left out.
"""

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from s6mod.errors import DataError

MAX_MEMBERS = 2_000_000
MAX_BYTES = 200 << 30  # unpacked
MAX_RATIO = 100  # unpacked to packed, where it matters:
HARMLESS = 100 << 20  # below so many bytes a high ratio is no harm
CHUNK = 1 << 20
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    UnicodeDecodeError, struct.error,
)  # fmt: skip


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or tar archive that can be unpacked; an ``.npz`` is data."""
    if not path.is_file() or path.suffix.lower() == ".npz":
        return False
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except EOFError:  # a compressed one that breaks off at its beginning: told when it is unpacked
        return True


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip, tar or compressed tar archive into the empty folder ``target``."""
    members = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive)
    number = total = 0
    try:
        for name, stream in members:
            number += 1
            if number > MAX_MEMBERS:
                raise DataError(f"expected at most {MAX_MEMBERS:,} members in {archive}, got more; unpack it yourself")
            path = _safe_name(name, archive)
            if "__MACOSX" in path.parts:  # a shadow of every file, which macOS adds
                continue
            file = target / path
            if stream is None:
                file.mkdir(parents=True, exist_ok=True)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as out:  # x: a second member of one name is refused
                while chunk := stream.read(CHUNK):
                    total += len(chunk)
                    refuse_bomb(archive, total)
                    out.write(chunk)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"expected each name once in {archive}, got {name!r} again; repack it") from None
    except DAMAGE:
        raise _damaged(archive) from None
    except OSError as error:
        if error.errno is None:  # of the gzip module
            raise _damaged(archive) from None
        raise DataError(f"expected to unpack {archive}, got: {error.strerror}; make room and try again") from None


def refuse_bomb(archive: Path, unpacked: int) -> None:
    """Stop at an archive that unpacks to far more than images do."""
    packed = archive.stat().st_size
    if unpacked > MAX_BYTES or unpacked > max(HARMLESS, MAX_RATIO * packed):
        raise DataError(
            f"expected at most {max(HARMLESS, min(MAX_BYTES, MAX_RATIO * packed)):,} bytes in {archive}, got more; "
            "do not trust it, or unpack it yourself"
        )


def sole_folder(folder: Path) -> Path:
    """The first folder on the way down that holds more than one folder: archives like to wrap what they hold."""
    while len(inside := visible(folder)) == 1 and inside[0].is_dir():
        folder = inside[0]
    return folder


def visible(folder: Path) -> list[Path]:
    """What a folder holds, without hidden files such as macOS lays beside others."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = member.external_attr >> 16 & 0o170000  # the Unix file type, 0 where none was stored
            if kind not in (0, 0o040000, 0o100000):
                raise _special(member.filename, archive)
            if member.flag_bits & 1:
                raise DataError(f"expected an archive without a password, got {archive}; unpack it yourself")
            if not member.filename:
                raise _damaged(archive)
            if member.is_dir():
                yield member.filename, None
            else:
                with opened.open(member) as stream:
                    yield member.filename, stream


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isdir():
                yield member.name, None
            elif member.isreg() and not member.issparse() and (stream := opened.extractfile(member)) is not None:
                yield member.name, stream
            else:
                raise _special(member.name, archive)


def _safe_name(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise DataError(
            f"expected names below one folder in {archive}, got {name!r}, which leads elsewhere; do not trust it"
        )
    return path


def _special(name: str, archive: Path) -> DataError:
    return DataError(
        f"expected plain files in {archive}, got the link or device {name!r}; do not trust it, or repack it"
    )


def _damaged(archive: Path) -> DataError:
    return DataError(f"expected a whole archive in {archive}, got a truncated or damaged one; fetch it again")
