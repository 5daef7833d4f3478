"""Taking runs to their ends: one after another, or several side by side on one GPU.

Side by side, each run has a CUDA stream of its own and takes one step in its turn; the small kernels of one fill the
gaps of another. Runs share nothing but the data set, so each gives the result that it gives alone.
"""

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch

from s6mod.errors import S6modError
from s6mod.runs.run import Run

MOST_AT_ONCE = 8  # more gained nothing per run when measured on an H200
PROBE_STEPS = 30  # steps after which the first run has captured and its memory is known
SPARE = 0.8  # share of the free memory that further runs may plan with


class Interrupted(S6modError):  # noqa: N818 - it is a request, not a fault
    """Runs were asked to stop and have saved their state."""

    def __init__(self, runs: list[Run], not_begun: int, number: int, advice: str | None = None) -> None:
        """``advice``: how to go on, where it is neither to resume the one run nor to give the same command again."""
        if advice is None:
            alone = runs[0] if len(runs) == 1 and not not_begun else None
            command = _command(alone) if alone else "the same command again"
            advice = f"go on with: {command}"
        waiting = f"; {not_begun} not begun" if not_begun else ""
        super().__init__(f"stopped by {signal.Signals(number).name}{waiting}; {advice}")
        self.runs, self.not_begun, self.number = runs, not_begun, number
        self.exit_code = 128 + number


def _command(run: Run) -> str:
    """What goes on with a run; trackers of one's own are imported only if they are named."""
    track = run.config.output.track
    named = [word for name in track for word in ("--track", name)] if any(":" in name for name in track) else []
    return shlex.join(["s6mod", "train", "--resume", str(run.folder), *named])


class StopRequest:
    """Whether a signal has asked for a stop."""

    number: int | None = None


def execute(
    runs: Iterable[Callable[[], Run]],
    at_once: int | None = None,
    failed: Callable[[int, Exception], None] | None = None,
) -> list[dict[str, Any]]:
    """Make each run and take it to its end; results in the order given.

    ``at_once``: how many share a GPU; None: as many as its free memory allows, measured on the first run. On a CPU
    runs follow one another. ``failed``: told the number of a run that fails, and why, while the others go on; without
    it, the first failure ends all.
    """
    waiting = list(runs)
    if len(waiting) > 1:
        # A work queue for each run's stream, or one run's work would wait behind another's. CUDA reads this when a
        # process first uses it. Its usual number is as high, but a process that shares the device by MPS gets only two.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", str(MOST_AT_ONCE))
    with stopping_politely() as request:
        return _Shift(waiting, at_once, request, failed).work()


class _Shift:
    """The runs that wait, those under way, and the results of those done; a run that is done is let go."""

    def __init__(
        self,
        waiting: list[Callable[[], Run]],
        at_once: int | None,
        request: StopRequest,
        failed: Callable[[int, Exception], None] | None,
    ) -> None:
        self.waiting, self.at_once, self.request = list(enumerate(waiting)), at_once, request
        self.failed = failed
        self.active: list[_Active] = []
        self.results: dict[int, dict[str, Any]] = {}
        self.rounds = 0

    def work(self) -> list[dict[str, Any]]:
        """Rounds of one step each, until all are done."""
        try:
            self._admit(1)
            while self.active:
                self._round()
                if self.request.number is not None:
                    break
                if self.waiting and (not self.active or self.rounds >= PROBE_STEPS):
                    self._admit(self._room())
        except BaseException:
            self._save_all()  # one run's failure must not cost the others their work
            raise
        if self.request.number is not None and (self.active or self.waiting):
            self._save_all()
            raise Interrupted([each.run for each in self.active], len(self.waiting), self.request.number)
        return [self.results[number] for number in sorted(self.results)]

    def _round(self) -> None:
        stepped = list(self.active)
        begin, evaluated = time.perf_counter(), sum(each.run.cursor.eval_seconds for each in stepped)
        for each in stepped:
            self.active.remove(each)  # were it to fail or to end, its state is not one to save
            try:
                going = each.advance()
            except Exception as error:
                self._lose(each.number, error)
                continue
            if going:
                self.active.append(each)
            else:
                result = each.run.result
                assert result is not None
                self.results[each.number] = result
        # Evaluations have a clock of their own; what is left of the round is shared by those who stepped.
        evaluating = sum(each.run.cursor.eval_seconds for each in stepped) - evaluated
        share = (time.perf_counter() - begin - evaluating) / len(stepped)
        for each in stepped:
            each.run.cursor.seconds += share
            each.run.cursor.runs_at_once = max(each.run.cursor.runs_at_once, len(stepped))
        self.rounds += 1

    def _admit(self, most: int) -> None:
        while self.waiting and len(self.active) < most:
            number, make = self.waiting.pop(0)
            try:
                self.active.append(_Active(number, make()))
            except Exception as error:
                self._lose(number, error)

    def _lose(self, number: int, error: Exception) -> None:
        """A run has failed: tell whoever wants to know and go on, or let it end all."""
        if self.failed is None:
            raise error
        self.failed(number, error)

    def _room(self) -> int:
        """How many runs may be under way."""
        if not self.active or self.active[0].stream is None:
            return 1
        if self.at_once is None:
            device = self.active[0].run.learner.engine.device
            each = torch.cuda.memory_reserved(device) / len(self.active)
            free, _ = torch.cuda.mem_get_info(device)
            self.at_once = max(1, min(MOST_AT_ONCE, len(self.active) + int(SPARE * free / each)))
        return self.at_once

    def _save_all(self) -> None:
        """Each, whether or not another could be saved; then the first failure is told."""
        failures = []
        for each in self.active:
            try:
                each.save()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]


class _Active:
    """A run under way, on a stream of its own where there are streams."""

    def __init__(self, number: int, run: Run) -> None:
        self.number = number
        self.run = run
        self.steps = run.steps()
        device = run.learner.engine.device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream is not None:
            torch.cuda.synchronize(device)  # what was built on the default stream is there

    def advance(self) -> bool:
        """Take one step; False at the end. A run that ends or fails is left."""
        with ExitStack() as leaving, self._on_stream():
            leaving.push(self.run)
            for _ in self.steps:
                leaving.pop_all()
                return True
        return False

    def save(self) -> None:
        """Save its state and leave it. Any other stream would copy what steps still under way are about to change."""
        with self.run, self._on_stream():
            self.run.checkpoint()

    def _on_stream(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()


@contextmanager
def stopping_politely() -> Iterator[StopRequest]:
    """Ctrl-C, SIGTERM or a terminal that closes ask for a stop at the next step; a second Ctrl-C stops at once."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        request.number = number
        # A terminal that closes tells more than once: its shell does, and the system does.
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else before[signal.Signals(number)])

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            before[number] = signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
