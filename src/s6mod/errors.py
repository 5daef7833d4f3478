"""Errors that a user can act on.

Each message is one sentence: what was expected, what came, what to do. The command line prints it without a
traceback and exits with 2; anything else that is raised is a bug in this package.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

# How torch and Python say that memory is not there, on a CPU or a GPU, or that nobody could have so much. The last
# two are what Python says of C code, such as NumPy's, that got none and did not tell.
_SHORT = (
    "can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory",
    "storage size calculation overflowed", "could not create a primitive", "can't start new thread",
    "error return without exception set", "returned null without setting an exception",
)  # fmt: skip


def printable(text: str) -> str:
    """The text with escapes (``\\x1b``) for what a terminal would obey instead of showing it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class S6modError(Exception):
    """Base of every error that is the input's fault, not the program's.

    What it quotes may have come from anywhere, so its sentence is made printable.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


def shortly(error: BaseException) -> str:
    """What an error says, in one line; after its kind, unless it is one of ours."""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, S6modError) else f"{type(error).__name__}: {said}"


class InputError(S6modError, ValueError):
    """Images, labels or a call order that a learner cannot take."""


class ConfigError(S6modError, ValueError):
    """A configuration key or value that does not exist or does not fit."""


class DataError(S6modError):
    """A data set that is missing, truncated or not what its name says."""


class CheckpointError(S6modError):
    """A saved state that is missing, damaged or from another configuration."""


class ResourceError(S6modError, MemoryError):
    """Memory that is not there."""


def require_installed(module: str, purpose: str, extra: str) -> None:
    """Refuse, before any work is done, where a package of an extra is missing."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"expected {module} for {purpose}, got none installed; run: pip install -e '.[{extra}]'")


@contextmanager
def memory_for(what: str, advice: str) -> Iterator[None]:
    """If memory runs out meanwhile, say for what, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError, SystemError) as error:
        said = str(error).partition("\n")[0]
        short = isinstance(error, MemoryError) or any(words in said.lower() for words in _SHORT)
        if isinstance(error, S6modError) or not short:
            raise
        raise ResourceError(f"expected enough memory for {what}, got: {said or 'too little'}; {advice}") from error
