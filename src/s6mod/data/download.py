"""Fetching official files: resumed where a connection broke, kept only if the MD5 is the published one."""

import errno
import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s6mod.errors import DataError

ATTEMPTS = 5  # in a row that bring nothing
TIMEOUT = 30.0  # seconds of silence
CHUNK = 1 << 18
FULL = (errno.ENOSPC, errno.EDQUOT)
Watch = Callable[[int, int | None], None]  # called with the bytes there are and, where known, the bytes there will be


@dataclass(frozen=True)
class Download:
    """One official file."""

    url: str
    md5: str

    @property
    def file_name(self) -> str:
        """The file's own name."""
        return self.url.rsplit("/", 1)[-1]


def fetch(download: Download, folder: Path, watch: Watch = lambda done, total: None) -> Path:
    """The file in ``folder``, fetched if it is not there; what a broken connection left is gone on with."""
    file = folder / download.file_name
    if file.is_file() and _md5(file) == download.md5:
        return file
    part = folder / f"{download.file_name}.part"
    failures = 0
    while True:
        before = _size(part)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            total = _receive(download.url, part, watch)
            if total is None or _size(part) >= total:
                break
            problem = f"{_size(part):,} of {total:,} bytes"
        except urllib.error.HTTPError as error:
            raise DataError(
                f"expected the file {download.url}, got: {error.code} {error.reason}; bring your own copy with --from"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "filename", None) is not None or getattr(error, "errno", None) in FULL:
                part.unlink(missing_ok=True)
                raise DataError(
                    f"expected to write {part}, got: {getattr(error, 'strerror', error)}; make room and try again"
                ) from None
            problem = f"{_size(part):,} bytes, then: {getattr(error, 'reason', None) or error}"
        failures = 0 if _size(part) > before else failures + 1
        if failures == ATTEMPTS:
            raise DataError(
                f"expected all of {download.url}, got {problem}; try again to go on from there, "
                "or bring your own copy with --from"
            )
    if (found := _md5(part)) != download.md5:
        part.unlink()
        raise DataError(
            f"expected the MD5 {download.md5} of {download.url}, got {found}, so it was thrown away; try again, "
            "or bring your own copy with --from"
        )
    return part.replace(file)


def _receive(url: str, part: Path, watch: Watch) -> int | None:
    """Append what is missing to ``part``; the bytes that the whole file has, if the server says so."""
    have = _size(part)
    request = urllib.request.Request(  # noqa: S310 - addresses are ours, and what comes is compared with an MD5
        url, headers={"User-Agent": "s6mod"} | ({"Range": f"bytes={have}-"} if have else {})
    )
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310 - as above
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing follows what we have: the MD5 will tell whether that is all
            raise
        return None
    with response:
        if response.status != 206 or not str(response.headers.get("Content-Range")).startswith(f"bytes {have}-"):
            have = 0  # the server sends it all again
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None and length.isdecimal() else None
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            _copy(response, file, watch, total)
    return total


def _copy(response: Any, file: Any, watch: Watch, total: int | None) -> None:
    watch(file.tell(), total)
    while chunk := response.read(CHUNK):
        file.write(chunk)
        watch(file.tell(), total)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _md5(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
