"""What Ray and SLURM share: packs of runs that travel to where they are run, and what is made of how they end.

Every place must see the run folders under the same path. They carry everything: a pack whose worker dies is begun
again, perhaps elsewhere, and each of its runs goes on from its checkpoint or keeps its result.
"""

import os
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from s6mod.allocator import keep_freed_memory
from s6mod.data import default_root
from s6mod.errors import ConfigError
from s6mod.experiments.costs import cores, cost
from s6mod.experiments.follow import Follower
from s6mod.experiments.launch import PATIENCE, Outcome, Watch
from s6mod.experiments.sweep import Job
from s6mod.experiments.worker import Event, run_batch
from s6mod.files import expanded
from s6mod.registry import Brought
from s6mod.runs.execute import MOST_AT_ONCE, StopRequest

DEATHS = 3  # how often a pack is begun again after its worker died, unless told
CHECKPOINT_SECONDS = 120.0  # what a run may lose when its worker dies


@dataclass(frozen=True)
class Report:
    """How a pack ended, as the worker saw it; runs by their numbers in the pack."""

    failures: dict[int, str]
    held: frozenset[int] = frozenset()  # other processes have them
    warnings: tuple[str, ...] = ()
    stopped: bool = False  # by a signal, with what was under way saved


@dataclass(frozen=True)
class Pack:
    """Runs that are done by one worker: one on a CPU, or several side by side on a GPU."""

    jobs: tuple[Job, ...]
    command: tuple[str, ...]  # of the sweep, for the records
    threads: int = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """With parts of one's own before the runs that need them: whoever unpickles it imports them first."""
        return _unpacked, (Brought.here(), self.jobs, self.command, self.threads)

    def run(self) -> Report:
        """Begin or resume each run and take it to its end; called where the pack has come to."""
        sys.argv = list(self.command)
        keep_freed_memory()
        torch.set_num_threads(self.threads)
        failures: dict[int, str] = {}
        held: set[int] = set()

        def tell(event: Event) -> None:
            if event.kind == "failed":
                failures[event.job] = event.reason
            elif event.kind == "held":
                held.add(event.job)

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            stopped = run_batch([(job.config, job.folder) for job in self.jobs], None, tell)
        said = [str(each.message) for each in told if issubclass(each.category, UserWarning)]
        return Report(failures, frozenset(held), tuple(dict.fromkeys(said)), stopped)


def _unpacked(_: Brought, *fields: Any) -> Pack:
    return Pack(*fields)


class Pool(Protocol):
    """Where packs go."""

    room: int  # packs that it takes at once
    retries: int  # how often a run that failed is sent again; what the pool does by itself is not counted
    deaths: int  # the same for a pack whose worker died
    begun: Sequence[Pack]  # what an earlier sweep sent and is still there

    def submit(self, packs: Sequence[Pack]) -> None:
        """Take packs."""

    def ended(self) -> Iterable[tuple[Pack, Report | str]]:
        """Packs that have ended since the last call, with their reports, or why there is none."""

    def stop(self) -> None:
        """Let every run under way save its state, and wait for that."""


class ClusterSweep:
    """The packs that wait, those that are away, and what came of them."""

    def __init__(self, pool: Pool, packs: Iterable[Pack], watch: Watch, request: StopRequest) -> None:
        self.pool, self.watch, self.request = pool, watch, request
        self.waiting = deque(packs)
        self.later: deque[tuple[float, Pack]] = deque()  # when to look again at runs that others have
        self.away = len(pool.begun)
        self.follower = Follower([job for pack in [*pool.begun, *self.waiting] for job in pack.jobs], watch)
        self.failed: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self.outcome = Outcome()

    def work(self) -> Outcome:
        """Until nothing is left to do or a signal came."""
        while self.request.number is None and (self.waiting or self.later or self.away):
            self._hand_out()
            for pack, report in self.pool.ended():
                self._ended(pack, report)
            self.follower.look()
            time.sleep(PATIENCE if self.away or self.later else 0)
        if self.request.number is not None:
            self.outcome.signal = self.request.number
            self.watch.say("stopping: each run saves its state")
            self.pool.stop()
            self.follower.look()
        return self.outcome

    def _hand_out(self) -> None:
        while self.later and self.later[0][0] <= time.monotonic():
            self.waiting.append(self.later.popleft()[1])
        packs = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.pool.room - self.away))]
        if packs:
            self.pool.submit(packs)
            self.away += len(packs)

    def _ended(self, pack: Pack, report: Report | str) -> None:
        self.away -= 1
        if isinstance(report, str) or report.stopped:
            self._died(pack, "it was told to stop" if isinstance(report, Report) else report)
            return
        for text in report.warnings:
            self.watch.say(f"warning: {text}")
        for number, job in enumerate(pack.jobs):
            if number in report.held:
                self.watch.say(f"{job.name}: another process has it under way; it comes last")
                self.later.append((time.monotonic() + 10 * PATIENCE, replace(pack, jobs=(job,))))
            elif number in report.failures:
                self._again(replace(pack, jobs=(job,)), report.failures[number], self.failed, self.pool.retries)
            else:
                self.follower.end(job)

    def _died(self, pack: Pack, reason: str) -> None:
        self.follower.look()  # some may have ended before
        left = tuple(job for job in pack.jobs if job.name in self.follower.open)
        if left:
            self._again(replace(pack, jobs=left), f"its worker is gone: {reason}", self.died, self.pool.deaths)

    def _again(self, pack: Pack, reason: str, count: Counter[str], allowed: int) -> None:
        count[pack.jobs[0].name] += 1
        again = count[pack.jobs[0].name] <= allowed
        if again:
            self.waiting.append(pack)
        for job in pack.jobs:
            if not again:
                self.outcome.failures[job.name] = reason
            self.watch.failed(job, reason, again)


def make_packs(jobs: Sequence[Job], gpus: int | None, at_once: int | None = None) -> list[Pack]:
    """Jobs as they travel: alone to a CPU (``gpus`` None), else seeds of one cell together to a GPU.

    On GPUs: ``at_once`` in a pack, or as many as pay while all of ``gpus`` have some.
    """
    command = ("s6mod", *sys.argv[1:])
    if gpus is None:
        return [Pack((_placed(job, "cpu", 1),), command) for job in jobs]
    cells: dict[str, list[Job]] = {}
    for job in jobs:
        cells.setdefault(job.config.cell, []).append(job)
    size = at_once or max(1, min(MOST_AT_ONCE, len(jobs) // max(1, gpus)))
    packs = []
    for group in cells.values():
        number = -(-len(group) // size)
        for first in range(number):  # sizes differ by one at the most
            share = group[first::number]
            packs.append(Pack(tuple(_placed(job, "cuda", len(share)) for job in share), command))
    return packs


def _placed(job: Job, device: str, together: int) -> Job:
    """The same run with paths that hold anywhere, and checkpoints often enough for workers that may die."""
    config = job.config
    root = config.data.root
    if root is not None:
        root = str(expanded(root).absolute())
    elif os.environ.get("S6MOD_DATA"):  # workers may have another environment
        root = str(default_root().absolute())
    update = {
        "engine": config.engine.model_copy(update={"device": device}),
        "data": config.data.model_copy(update={"root": root}),
        "output": config.output.model_copy(update={"checkpoint_every": checkpoint_steps(job, device, together)}),
    }
    return Job(job.name, config.model_copy(update=update), job.folder.absolute())


def checkpoint_steps(job: Job, device: str, together: int) -> int:
    """Steps between two checkpoints: as configured, else about ``CHECKPOINT_SECONDS``, and never more than usual."""
    output, known = job.config.output, cost(job.config.plain())
    if "checkpoint_every" in output.model_fields_set or known is None:
        return output.checkpoint_every
    on_one_core = known.cpu_seconds * cores() / known.steps
    seconds = known.ms / 1000 * together if device == "cuda" else on_one_core
    return max(1, min(output.checkpoint_every, round(CHECKPOINT_SECONDS / seconds)))


def wants_gpu(device: str) -> bool | None:
    """What --device says of a cluster, which chooses among its GPUs by itself; None: whatever there is."""
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"expected --device auto, cpu or cuda on a cluster, got {device!r}; leave the choice to it")
    return {"auto": None, "cpu": False, "cuda": True}[device]
