"""Errors that a user can act on.

Each message is one sentence: what was expected, what came, what to do. The command line prints it without a
traceback and exits with 2; anything else that is raised is a bug in this package.
"""


def printable(text: str) -> str:
    """The text with escapes (``\\x1b``) for what a terminal would obey instead of showing it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class S6modError(Exception):
    """Base of every error that is the input's fault, not the program's.

    What it quotes may have come from anywhere, so its sentence is made printable.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(S6modError, ValueError):
    """Images, labels or a call order that a learner cannot take."""


class ConfigError(S6modError, ValueError):
    """A configuration key or value that does not exist or does not fit."""


class DataError(S6modError):
    """A data set that is missing, truncated or not what its name says."""


class CheckpointError(S6modError):
    """A saved state that is missing, damaged or from another configuration."""
