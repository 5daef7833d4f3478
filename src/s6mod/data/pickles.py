"""Reading the pickles that CIFAR is published in, without running the programs that pickles are.

A pickle can name any function and call it. This reader knows the few names that CIFAR files hold, and answers them
with stand-ins of its own that can hold bytes and nothing else: neither NumPy nor any other library sees what the file
says before it has been checked. Long stretches of bytes stay in the file and are mapped into memory, not copied. A file
made to exhaust memory is not guarded against.
"""

import math
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from s6mod.errors import DataError
from s6mod.files import plain_file

LONG = 1 << 16  # bytes from which on a stretch is mapped


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file; its values are numbers, texts (str or bytes), lists of these, or uint8 arrays.

    Arrays may be written to; that leaves the file as it is.
    """
    try:
        with plain_file(path).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if path.stat().st_size else b""
    except OSError as error:
        raise DataError(
            f"expected a readable file {path}, got: {error.strerror}; fetch the data set, or point root at its folder"
        ) from None
    try:
        return _load(content)
    except _ForbiddenError as error:
        raise DataError(
            f"expected a dictionary of numbers, texts and uint8 arrays in {path}, got {error}; "
            "do not trust this file, fetch the official one"
        ) from None
    except Exception:  # a damaged pickle fails in any way that a program can
        raise DataError(
            f"expected a whole CIFAR file in {path}, got a truncated or damaged one; fetch the data set again"
        ) from None


def as_text(value: bytes | str) -> str:
    """Text, whether Python 2 (bytes) or Python 3 (str) wrote it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _load(content: mmap.mmap | bytes) -> dict[str, Any]:
    values = _Reader(content).load()
    if not isinstance(values, dict):
        raise _ForbiddenError(f"a {type(values).__name__} instead of a dictionary")
    if not all(isinstance(key, bytes | str) for key in values):
        raise _ForbiddenError("a key that is no text")
    return {as_text(key): value.values if isinstance(value, _Array) else value for key, value in values.items()}


class _ForbiddenError(pickle.UnpicklingError):
    """The file asks for something that no CIFAR file holds."""


class _Dtype:
    """Stands in for ``numpy.dtype``: uint8 or nothing."""

    def __init__(self, code: Any, *flags: Any) -> None:
        if code not in ("u1", b"u1"):
            raise _ForbiddenError("an array of another type than uint8")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment: nothing to keep for single bytes."""


class _Array:
    """Stands in for ``numpy.ndarray`` and for the function that pickles rebuild one with."""

    values: npt.NDArray[np.uint8] | None = None

    def __init__(self, kind: Any, *placeholder: Any) -> None:
        """As the file calls it: the array's class, then a shape and a type that ``__setstate__`` replaces."""

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | memoryview):
            raise _ForbiddenError("an array of objects")
        if len(content) != math.prod(shape):
            raise ValueError("an array's shape and size disagree")
        if isinstance(content, bytes):
            content = bytearray(content)  # which can be written to
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Latin1(bytes):
    """Stands in for ``_codecs.encode``, by which Python 3 writes bytes in protocol 2."""

    def __new__(cls, text: str, codec: str) -> "_Latin1":
        if codec != "latin1":
            raise _ForbiddenError("an unknown text encoding")
        return super().__new__(cls, text, "latin1")

    def __setstate__(self, state: Any) -> None:
        raise _ForbiddenError("attributes of a text")


# All of them define __setstate__: a file that tries to write attributes on a stand-in itself is refused.
_KNOWN: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # NumPy 1
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # NumPy 2
    ("_codecs", "encode"): _Latin1,
}


class _Bytes:
    """The file, as an unpickler reads one."""

    def __init__(self, content: mmap.mmap | bytes) -> None:
        self.content, self.view, self.at = content, memoryview(content), 0

    def read(self, size: int) -> bytes | memoryview:
        part = self.view[self.at : self.at + size]
        if len(part) < size:
            raise EOFError
        self.at += size
        return part if size >= LONG else bytes(part)

    def readline(self) -> bytes:
        end = self.content.find(b"\n", self.at)
        return bytes(self.read(end + 1 - self.at if end >= 0 else len(self.view)))


class _Reader(pickle._Unpickler):  # in Python, as the one in C copies every stretch twice
    def __init__(self, content: mmap.mmap | bytes) -> None:
        super().__init__(_Bytes(content), encoding="bytes")  # type: ignore[arg-type]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise _ForbiddenError(f"a reference to {module}.{name}")
        return _KNOWN[module, name]
