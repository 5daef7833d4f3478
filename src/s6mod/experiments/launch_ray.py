"""The Ray launcher (extra ``ray``): a task for each pack of runs, on a cluster or on a Ray of its own on this machine.

Ray places the tasks and begins one again whose worker or node died; the runs go on from their checkpoints.
"""

import logging
import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from s6mod.errors import ConfigError, S6modError, require_installed
from s6mod.experiments.cluster import DEATHS, ClusterSweep, Pack, Report, make_packs, wants_gpu
from s6mod.experiments.costs import cores, cost
from s6mod.experiments.launch import Outcome, Watch
from s6mod.experiments.sweep import Job
from s6mod.runs.execute import MOST_AT_ONCE, SPARE, stopping_politely

REACH_SECONDS = 5.0  # Ray itself would try for minutes
STOP_SECONDS = 60.0  # for runs under way to save their state
STORE_BYTES = 100_000_000  # of a Ray of our own: nothing but reports goes through it


class RunsFailed(S6modError):  # noqa: N818 - Ray names it in its messages
    """Some runs of a pack failed; told to Ray as an error, so that it may try again."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


@dataclass(frozen=True)
class RayLauncher:
    """Runs as Ray tasks."""

    gpus: int | None  # of the cluster; None: its CPUs are meant
    gpu_gib: float = 0.0  # memory of its smallest GPU
    at_once: int | None = None  # runs in a task on a GPU
    workers: int | None = None  # tasks at once; None: as many as Ray has room for
    retries: int | None = None  # of failed runs and dead workers together; None: dead workers only, ``DEATHS`` times

    @classmethod
    def connected(
        cls, address: str | None, device: str, workers: int | None, at_once: int | None, retries: int | None
    ) -> "RayLauncher":
        """On the cluster at ``address`` (or $RAY_ADDRESS), else on a Ray started for it here."""
        require_installed("ray", "--on ray", "ray")
        import ray

        gpu = wants_gpu(device)
        _connect(address or os.environ.get("RAY_ADDRESS"), workers)
        there = int(ray.cluster_resources().get("GPU", 0))
        if gpu is False or (gpu is None and not there):
            return cls(None, workers=workers, retries=retries)
        if not there:
            ray.shutdown()
            raise ConfigError("expected GPUs for --device cuda, got a Ray without any; give --device cpu or add nodes")
        return cls(there, _smallest_gpu(ray), at_once, workers, retries)

    @property
    def on_cpu(self) -> bool:
        """See ``Launcher``."""
        return self.gpus is None

    def launch(self, jobs: Sequence[Job], watch: Watch) -> Outcome:
        """See ``Launcher``."""
        import ray

        packs = make_packs(jobs, self.gpus, self.at_once)
        try:
            with stopping_politely() as request:
                return ClusterSweep(_RayPool(ray, self), packs, watch, request).work()
        finally:
            ray.shutdown()


class _RayPool:
    """Tasks by their references."""

    retries = deaths = 0  # Ray does both
    begun: Sequence[Pack] = ()  # tasks go when their driver goes

    def __init__(self, ray: Any, launcher: RayLauncher) -> None:
        self.ray, self.launcher = ray, launcher
        self.room = launcher.workers or 1_000_000
        self.task = ray.remote(
            max_retries=DEATHS if launcher.retries is None else launcher.retries,
            retry_exceptions=[RunsFailed] if launcher.retries else False,
            scheduling_strategy="SPREAD",
        )(_perform)
        self.tasks: dict[Any, Pack] = {}

    def submit(self, packs: Sequence[Pack]) -> None:
        """Take packs."""
        for pack in packs:
            gpus = 0.0 if self.launcher.gpus is None else gpu_share(pack, self.launcher.gpu_gib)
            self.tasks[self.task.options(num_cpus=pack.threads, num_gpus=gpus).remote(pack)] = pack

    def ended(self) -> Iterable[tuple[Pack, Report | str]]:
        """Packs whose tasks have ended."""
        for task in self._ready(0):
            yield self.tasks.pop(task), self._report(task)

    def stop(self) -> None:
        """Interrupt the tasks; each run saves its state."""
        for task in self.tasks:
            self.ray.cancel(task)
        self._ready(STOP_SECONDS)

    def _ready(self, seconds: float) -> list[Any]:
        tasks = list(self.tasks)
        return list(self.ray.wait(tasks, num_returns=len(tasks), timeout=seconds)[0]) if tasks else []

    def _report(self, task: Any) -> Report | str:
        try:
            report: Report = self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            return cause.report if isinstance(cause, RunsFailed) else f"{type(cause).__name__}: {_first_line(cause)}"
        except self.ray.exceptions.RayError as error:
            return f"{_first_line(error)} ({type(error).__name__})"
        return report


def _perform(pack: Pack) -> Report:
    """The task."""
    report = pack.run()
    if report.failures:
        raise RunsFailed(report)
    return report


def gpu_share(pack: Pack, gpu_gib: float) -> float:
    """The part of a GPU that a pack asks for: by the memory of its runs, with no more of them on a GPU than pay."""
    costs = [cost(job.config.plain()) for job in pack.jobs]
    shares = [1.0 if each is None else each.memory_gib / (SPARE * gpu_gib) for each in costs]
    return round(min(1.0, sum(max(share, 1 / MOST_AT_ONCE) for share in shares)), 4)


def _connect(address: str | None, workers: int | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cpus = workers or cores()
        ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
        return
    if place := re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address):
        try:
            socket.create_connection((place[1], int(place[2])), REACH_SECONDS).close()
        except OSError as error:
            raise _unreachable(address, error.strerror or str(error)) from None
    try:
        ray.init(address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        raise _unreachable(address, _first_line(error)) from None


def _unreachable(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"expected a Ray at {address}, got none that answers ({why.rstrip('.')}); "
        "check --address (without it one is started here), and set RAY_AUTH_MODE=token if the cluster wants a token"
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _smallest_gpu(ray: Any) -> float:
    """GiB of memory of the smallest GPU, asked of every node that has some."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(num_cpus=0, num_gpus=0.01)(_gpu_gib)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    return float(min(ray.get([probe.options(scheduling_strategy=place).remote() for place in places])))


def _gpu_gib() -> float:
    return float(torch.cuda.get_device_properties(0).total_memory) / 2**30
