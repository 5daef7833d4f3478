"""Taking turns: what only one process of a machine, or one thread of a process, may do at a time.

A process is alone in a folder by a lock on the folder itself: its files are replaced, it never is. A process that ends
lets go by itself. Nothing here imports torch.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from s6mod.errors import CheckpointError, InputError

try:
    import fcntl
except ModuleNotFoundError:  # locks on folders, and forked processes besides, are of POSIX systems alone
    raise ImportError(
        "expected Linux or another POSIX system, got one without fcntl, as Windows is; use its Subsystem for Linux"
    ) from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is alone in the folder, and be it."""
    handle = _lock(folder, fcntl.LOCK_EX)
    assert handle is not None
    try:
        yield
    finally:
        let_go(handle)


def hold(folder: Path) -> int | None:
    """Be alone in the folder until ``let_go`` of what is returned; None: another process is."""
    return _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)


def let_go(handle: int) -> None:
    """Of a folder."""
    fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too, and would keep the lock
    os.close(handle)


def held(folder: Path) -> bool:
    """Whether a process is alone in the folder."""
    try:
        handle = _lock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # there is none
        return False
    if handle is not None:
        let_go(handle)
    return handle is None


def _lock(folder: Path, kind: int) -> int | None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind)
    except BaseException as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        if isinstance(error, OSError):
            raise CheckpointError(
                f"expected a file system with locks, got {folder}: {error.strerror}; choose a folder on another"
            ) from None
        raise
    return handle


class Turn:
    """What one thread has at a time; others wait. It may take it again while it has it, but not while it has it
    ``to_change`` something: whoever calls then, a signal handler or a hook, would see what is half done.

    Whoever waits gets it before the one who had it last gets it again: a thread that learns without a pause lets others
    predict in between.
    """

    def __init__(self) -> None:
        self._next, self._lock = Lock(), RLock()  # to be the next, to have it
        self._owner, self._depth = 0, 0
        self._changing = False

    def __enter__(self) -> None:
        if self._owner == get_ident():
            if self._changing:
                raise InputError(
                    "expected a call after learn() has returned, got one from within it, as from a signal handler; "
                    "let the handler set a flag, and look at it between two batches"
                )
            self._lock.acquire()
        else:
            with self._next:
                self._lock.acquire()
            self._owner = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner, self._changing = 0, False
        self._lock.release()

    @contextmanager
    def to_change(self) -> Iterator[None]:
        """The turn, of one who leaves nothing whole until done."""
        with self:
            self._changing = True
            try:
                yield
            finally:
                self._changing = False


class TakesTurns(Protocol):
    """An object whose methods are for one thread at a time."""

    turn: Turn


P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound=TakesTurns)


def in_turn(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Of such an object: calls from several threads wait for each other."""

    @wraps(method)
    def call(owner: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with owner.turn:
            return method(owner, *args, **kwargs)

    return call


def in_turn_to_change(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """The same, and nothing else may be called from within."""

    @wraps(method)
    def call(owner: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with owner.turn.to_change():
            return method(owner, *args, **kwargs)

    return call
