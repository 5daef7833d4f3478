"""Launchers: how the jobs of a sweep get done. The local one starts worker processes on this machine.

Those for clusters are in ``launch_ray`` and ``launch_slurm``. Run folders are the truth: a launcher may be stopped or
killed at any moment, and another one goes on from the folders.
"""

import contextlib
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import Protocol

import torch

from s6mod.engine.settings import Engine, EngineConfig
from s6mod.experiments.costs import cores
from s6mod.experiments.sweep import Job
from s6mod.experiments.worker import BatchEnd, Event, work
from s6mod.locks import held
from s6mod.registry import Brought
from s6mod.runs.execute import StopRequest, stopping_politely
from s6mod.runs.store import settled

STOPPED = "its process was told to stop by a signal"
PATIENCE = 1.0  # seconds between two looks at runs that other processes have under way


class Watch(Protocol):
    """Whoever wants to see a sweep go on."""

    def progress(self, job: Job, step: int, steps: int) -> None:
        """A run has come to a step."""

    def done(self, job: Job) -> None:
        """A run has its result."""

    def failed(self, job: Job, reason: str, again: bool) -> None:
        """A run has failed; ``again``: it will be tried once more."""

    def say(self, text: str) -> None:
        """Something that a person should read."""


@dataclass
class Outcome:
    """How a sweep ended: why each failed job did, and the signal that stopped it, if one did."""

    failures: dict[str, str] = field(default_factory=dict)  # by the name of the job
    signal: int | None = None


class Launcher(Protocol):
    """Gets jobs done."""

    @property
    def on_cpu(self) -> bool:
        """Whether runs go to CPUs."""

    def launch(self, jobs: Sequence[Job], watch: Watch) -> Outcome:
        """Take every job to its end, or as far as a stop or its failures let it."""


@dataclass(frozen=True)
class LocalLauncher:
    """Worker processes on this machine: one run at a time in each on a CPU, all runs that fit on each GPU."""

    devices: tuple[str, ...]  # one worker for each: "cpu" as often as there are workers, or cuda:0, cuda:1 ...
    threads: int = 1  # of each worker; beside a GPU more of them only spin
    at_once: int | None = None  # runs that share a GPU
    retries: int = 0

    @classmethod
    def here(cls, device: str, workers: int | None, at_once: int | None, retries: int) -> "LocalLauncher":
        """Fitted to this machine: GPUs if there are some and ``device`` allows, else as many workers as cores.

        A device that is not there is refused.
        """
        Engine.resolve(EngineConfig(device=device))
        if device == "cpu" or not torch.cuda.is_available():
            count = workers or cores()
            return cls(("cpu",) * count, max(1, cores() // count), None, retries)
        gpus = [device] if device != "auto" else [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        return cls(tuple(gpus), 1, at_once, retries)

    @property
    def on_cpu(self) -> bool:
        """See ``Launcher``."""
        return self.devices[0] == "cpu"

    def launch(self, jobs: Sequence[Job], watch: Watch) -> Outcome:
        """See ``Launcher``. A run that another process has under way is left for last and waited for."""
        if not jobs:
            return Outcome()
        with stopping_politely() as request:
            return _LocalSweep(self, jobs, watch, request).work()


class _LocalSweep:
    """The jobs that wait, the workers and what they have, and those left for later."""

    def __init__(self, launcher: LocalLauncher, jobs: Sequence[Job], watch: Watch, request: StopRequest) -> None:
        self.launcher, self.watch, self.request = launcher, watch, request
        self.waiting = deque(jobs)
        self.elsewhere: list[Job] = []  # other processes have them
        self.attempts: Counter[str] = Counter()
        self.outcome = Outcome()
        places = launcher.devices[: len(jobs)] if launcher.on_cpu else launcher.devices
        multiprocessing.set_forkserver_preload(imported_once(launcher.on_cpu, {job.config.data.name for job in jobs}))
        self.workers = [_Worker(device, launcher) for device in places]

    def work(self) -> Outcome:
        """Until nothing is left to do or a signal came."""
        try:
            while self.request.number is None and (self.waiting or self.elsewhere or self._busy()):
                self._hand_out()
                self._listen()
            if self.request.number is not None:
                self.outcome.signal = self.request.number
                with contextlib.suppress(OSError):  # the terminal may be what went
                    self.watch.say("stopping: each run saves its state")
                self._stop_politely()
        finally:
            for worker in self.workers:
                worker.end()
        return self.outcome

    def _busy(self) -> list["_Worker"]:
        return [worker for worker in self.workers if worker.batch]

    def _hand_out(self) -> None:
        if not self.waiting and not self._busy():
            free = [job for job in self.elsewhere if settled(job.folder) or not held(job.folder)]
            self.elsewhere = [job for job in self.elsewhere if job not in free]
            self.waiting.extend(free)
            if not free:
                time.sleep(PATIENCE)
        for worker in self.workers:
            if not worker.batch and (batch := self._next_batch(worker.device)):
                worker.give(batch)

    def _next_batch(self, device: str) -> list[Job]:
        """On a CPU one job; on a GPU its share of those with the same data."""
        while self.waiting and settled(self.waiting[0].folder):
            self.watch.done(self.waiting.popleft())  # by another process
        if not self.waiting:
            return []
        if device == "cpu":
            return [self.waiting.popleft()]
        data = self.waiting[0].config.data
        same = [job for job in self.waiting if job.config.data == data]
        share = same[: -(-len(same) // len(self.workers))]
        self.waiting = deque(job for job in self.waiting if job not in share)
        return share

    def _listen(self) -> None:
        busy = self._busy()
        for connection in wait([worker.connection for worker in busy], timeout=0.2):
            worker = next(each for each in busy if each.connection is connection)
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._died(worker)
                continue
            if isinstance(message, BatchEnd):
                self._ended(worker)
            else:
                self._event(worker, message)

    def _event(self, worker: "_Worker", event: Event) -> None:
        if event.kind == "warning":
            self.watch.say(f"warning: {event.reason}")
            return
        if event.kind == "refused":
            worker.lost.update(range(len(worker.batch)))
            for job in worker.batch:
                self._failed(job, event.reason)
            return
        job = worker.batch[event.job]
        if event.kind == "progress":
            self.watch.progress(job, event.step, event.steps)
            return
        worker.lost.add(event.job)
        if event.kind == "held":
            self.elsewhere.append(job)
            self.watch.say(f"{job.name}: another process has it under way; it comes last")
        else:
            self._failed(job, event.reason)

    def _failed(self, job: Job, reason: str) -> None:
        self.attempts[job.name] += 1
        again = self.attempts[job.name] <= self.launcher.retries
        if again:
            self.waiting.append(job)
        else:
            self.outcome.failures[job.name] = reason
        self.watch.failed(job, reason, again)

    def _ended(self, worker: "_Worker") -> None:
        left = [job for number, job in enumerate(worker.batch) if number not in worker.lost]
        stopped = [job for job in left if not settled(job.folder)]
        for job in left:
            if job not in stopped:
                self.watch.done(job)
        worker.batch = []
        if stopped and self.request.number is None:
            for job in stopped:
                self._failed(job, STOPPED)
            self._replace(worker)

    def _died(self, worker: "_Worker") -> None:
        worker.process.join()
        for number, job in enumerate(worker.batch):
            if settled(job.folder):
                self.watch.done(job)
            elif number not in worker.lost and self.request.number is None:
                code = worker.process.exitcode
                died = f"its process ended with code {code}; see whether memory ran out"
                self._failed(job, died if code else STOPPED)
        self._replace(worker)

    def _replace(self, worker: "_Worker") -> None:
        self.workers[self.workers.index(worker)] = _Worker(worker.device, self.launcher)

    def _stop_politely(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
            with contextlib.suppress(OSError):
                worker.connection.send(None)  # whoever is asked as its last run ends goes on to wait for a batch
        for worker in self.workers:
            worker.wait()
        for worker in self.workers:
            for number, job in enumerate(worker.batch):
                if number not in worker.lost and settled(job.folder):
                    self.watch.done(job)


def imported_once(on_cpu: bool, data: Collection[str]) -> list[str]:
    """What workers are forked with, so that not each of them imports it and keeps it in memory for itself.

    Torch imports one part of itself only with the first step of an optimiser, and digits come with scikit-learn. Beside
    GPUs workers are few, and nothing that might touch CUDA may be imported before a fork.
    """
    late = ["torch._dynamo", *["sklearn.datasets"] * ("digits" in data)]
    return [work.__module__, *(late if on_cpu else [])]


class _Worker:
    """A process and what it has been given."""

    def __init__(self, device: str, launcher: LocalLauncher) -> None:
        self.device = device
        self.batch: list[Job] = []
        self.lost: set[int] = set()  # of the batch: failed, or held elsewhere
        context = multiprocessing.get_context("forkserver")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, launcher.threads, launcher.at_once, Brought.here())
        self.process: ForkServerProcess = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def give(self, batch: list[Job]) -> None:
        """Hand over a batch; on a GPU its runs go where the worker is."""
        self.batch, self.lost = batch, set()
        configs = [job.config for job in batch]
        if self.device != "cpu":
            configs = [
                config.model_copy(update={"engine": config.engine.model_copy(update={"device": self.device})})
                for config in configs
            ]
        with contextlib.suppress(BrokenPipeError):  # if it is gone, listening will tell
            self.connection.send([(config, job.folder) for config, job in zip(configs, batch, strict=True)])

    def wait(self) -> None:
        """Until it has ended, by the end of what it says: whoever forked it may be gone and tell nothing of it."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.connection.recv()
        self.process.join()

    def end(self) -> None:
        """Let an idle worker go; end a busy one by force."""
        if self.batch:
            self.process.kill()
        self.connection.close()
        self.process.join()
