"""A worker process of a sweep: takes batches of jobs from a connection and says how they go on.

A batch is one run on a CPU, or all runs that share a GPU. A run that fails leaves its traceback in its folder and does
not stop the others. The worker stops politely, with checkpoints, when it is told to or when whoever started it is
gone.
"""

import contextlib
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch

from s6mod.allocator import keep_freed_memory
from s6mod.data import DataConfig, Dataset
from s6mod.engine.settings import Engine
from s6mod.errors import S6modError, shortly
from s6mod.registry import Brought
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import Interrupted, execute, stopping_politely
from s6mod.runs.folder import RunFolder
from s6mod.runs.progress import Progress
from s6mod.runs.run import Held, Run


@dataclass(frozen=True)
class Event:
    """Something that happened to a job of the batch, by its number there.

    A warning may be about any of them; what is refused is the whole batch.
    """

    kind: Literal["progress", "failed", "held", "warning", "refused"]
    job: int = -1
    step: int = 0
    steps: int = 0
    reason: str = ""


class BatchEnd:
    """The batch has ended."""


Batch = list[tuple[RunConfig, Path]]


def work(connection: Connection, threads: int, at_once: int | None, own: Brought) -> None:
    """Take batches until there are none; ``own``: what they may need, imported by now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the whole group; ours is told by its parent
    keep_freed_memory()
    torch.set_num_threads(threads)
    warnings.showwarning = lambda message, *_, **__: _tell(connection, Event("warning", reason=str(message)))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), stopping_politely() as request:
        # Whoever ends the whole group asks us, and so does our parent then; runs take the first, we the second.
        while request.number is None and (batch := _receive(connection)) is not None:
            stopped = run_batch(batch, at_once, partial(_tell, connection))
            connection.send(BatchEnd())
            if stopped:
                return


def _receive(connection: Connection) -> Batch | None:
    """The next batch; none if there is none, or if it has a part that this process does not know."""
    try:
        batch: Batch | None = connection.recv()
    except S6modError as error:
        reason = (
            f"{error} (other processes know parts of your own from plug-ins and --import alone: "
            "see docs/how-to/own-method.md)"
        )
        _tell(connection, Event("refused", reason=reason))
        return None
    return batch


def run_batch(batch: Batch, at_once: int | None, tell: Callable[[Event], None]) -> bool:
    """Take a batch to its end, or to a request to stop (True)."""

    def failed(number: int, error: Exception) -> None:
        if isinstance(error, Held):
            tell(Event("held", number, reason=str(error)))
        else:
            tell(Event("failed", number, reason=_reason(error, batch[number][1])))

    def make(number: int, config: RunConfig, folder: Path) -> Run:
        def watch(progress: Progress) -> None:
            tell(Event("progress", number, progress.step, progress.steps))

        data = dataset_on(Engine.resolve(config.engine).device, config.data)
        return Run.open(config, folder, data, watch)

    try:
        execute((partial(make, number, *job) for number, job in enumerate(batch)), at_once, failed)
    except Interrupted:
        return True
    return False


def _tell(connection: Connection, event: Event) -> None:
    try:
        connection.send(event)
    except (BrokenPipeError, ConnectionResetError):  # nobody is there any more
        signal.raise_signal(signal.SIGTERM)


def _reason(error: Exception, folder: Path) -> str:
    """One sentence; the traceback goes to the run's folder, if the disk takes it."""
    if isinstance(error, OSError) and error.strerror:
        where = error.filename or folder
        sentence = f"expected to read and write {where}, got: {error.strerror}; mend that and try again"
    else:
        sentence = shortly(error)
    files = RunFolder(folder)
    return f"{sentence} (traceback: {files.failure})" if files.note_failure(error) else sentence


@cache
def dataset_on(device: torch.device, config: DataConfig) -> Dataset:
    """A data set, loaded once for all runs of this process on a device."""
    return config.load().to(device)
