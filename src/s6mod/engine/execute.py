"""Taking runs to their ends: one after another, or several side by side on one GPU.

Side by side, each run has a CUDA stream of its own and takes one step in its turn; the small kernels of one fill the
gaps of another. Runs share nothing but the data set, so each gives the result that it gives alone.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch

from s6mod.engine.run import Run
from s6mod.errors import S6modError

MOST_AT_ONCE = 8  # more gained nothing per run when measured on an H200
PROBE_STEPS = 30  # steps after which the first run has captured and its memory is known
SPARE = 0.8  # share of the free memory that further runs may plan with


class Interrupted(S6modError):  # noqa: N818 - it is a request, not a fault
    """Runs were asked to stop and have saved their state."""

    def __init__(self, runs: list[Run], number: int) -> None:
        commands = " and ".join(f"s6mod train --resume {run.folder}" for run in runs)
        super().__init__(f"stopped by {signal.Signals(number).name}; go on with: {commands}")
        self.exit_code = 128 + number


class StopRequest:
    """Whether a signal has asked for a stop."""

    number: int | None = None


def execute(runs: Iterable[Callable[[], Run]], at_once: int | None = None) -> list[dict[str, Any]]:
    """Make each run and take it to its end; results in the order given.

    ``at_once``: how many share a GPU; None: as many as its free memory allows, measured on the first run. On a CPU
    runs follow one another.
    """
    with _stopping_politely() as request:
        return _Shift(list(runs), at_once, request).work()


class _Shift:
    """The runs that wait, those under way, and those done."""

    def __init__(self, waiting: list[Callable[[], Run]], at_once: int | None, request: StopRequest) -> None:
        self.waiting, self.at_once, self.request = waiting, at_once, request
        self.active: list[_Active] = []
        self.all: list[_Active] = []
        self.rounds = 0

    def work(self) -> list[dict[str, Any]]:
        self._admit(1)
        while self.active:
            begin, evaluated = time.perf_counter(), self._eval_seconds()
            share = len(self.active)
            stepped = list(self.active)
            self.active = [each for each in stepped if each.advance()]
            # Evaluations have a clock of their own; what is left of the round is shared by those who stepped.
            spent = time.perf_counter() - begin - (self._eval_seconds() - evaluated)
            for each in stepped:
                each.run.cursor.seconds += spent / share
                each.run.cursor.runs_at_once = max(each.run.cursor.runs_at_once, share)
            self.rounds += 1
            if self.request.number is not None and self.active:
                for each in self.active:
                    each.run.checkpoint()
                raise Interrupted([each.run for each in self.active], self.request.number)
            if self.waiting and (not self.active or self.rounds >= PROBE_STEPS):
                self._admit(self._room())
        results = [each.run.result for each in self.all]
        assert all(result is not None for result in results)
        return [result for result in results if result is not None]

    def _admit(self, most: int) -> None:
        while self.waiting and len(self.active) < most:
            newcomer = _Active(self.waiting.pop(0)())
            self.active.append(newcomer)
            self.all.append(newcomer)

    def _room(self) -> int:
        """How many runs may be under way."""
        device = self.all[0].run.learner.engine.device
        if device.type != "cuda":
            return 1
        if self.at_once is None:
            each = torch.cuda.memory_reserved(device) / max(1, len(self.active))
            free, _ = torch.cuda.mem_get_info(device)
            self.at_once = max(1, min(MOST_AT_ONCE, len(self.active) + int(SPARE * free / each)))
        return self.at_once

    def _eval_seconds(self) -> float:
        return sum(each.run.cursor.eval_seconds for each in self.all)


class _Active:
    """A run under way, on a stream of its own where there are streams."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps = run.steps()
        device = run.learner.engine.device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream is not None:
            torch.cuda.synchronize(device)  # what was built on the default stream is there

    def advance(self) -> bool:
        """Take one step; False at the end."""
        with torch.cuda.stream(self.stream) if self.stream is not None else nullcontext():
            for _ in self.steps:
                return True
        return False


@contextmanager
def _stopping_politely() -> Iterator[StopRequest]:
    """Ctrl-C and SIGTERM ask for a stop at the next step; a second one stops at once."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        request.number = number
        signal.signal(number, before[signal.Signals(number)])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
