"""Taking turns: what only one process of a machine, or one thread of a process, may do at a time."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is alone in the folder, and be it; a process that ends lets go by itself."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too, and would keep the lock
        os.close(handle)


class Turn:
    """What one thread has at a time, and may take again while it has it. A copy of it is a new one that nobody has.

    Whoever waits gets it before the one who had it last gets it again: a thread that learns without a pause lets others
    predict in between.
    """

    def __init__(self) -> None:
        self._next, self._lock = Lock(), RLock()  # to be the next, to have it
        self._owner, self._depth = 0, 0

    def __enter__(self) -> None:
        if self._owner == get_ident():
            self._lock.acquire()
        else:
            with self._next:
                self._lock.acquire()
            self._owner = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
        self._lock.release()

    def __reduce__(self) -> tuple[type["Turn"], tuple[()]]:
        return Turn, ()


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
