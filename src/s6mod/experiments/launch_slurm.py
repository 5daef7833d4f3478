"""The SLURM launcher (extra ``slurm``): job arrays through submitit, several runs packed into each GPU job.

Before its time limit, or when it is preempted, a job saves the state of its runs and is queued again. Where there is no
SLURM, submitit's local executor runs the jobs as processes of this machine.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from s6mod.errors import ConfigError, require_installed
from s6mod.experiments.cluster import DEATHS, ClusterSweep, Pack, Report, make_packs, wants_gpu
from s6mod.experiments.costs import cores
from s6mod.experiments.launch import Outcome, Watch
from s6mod.experiments.sweep import Job
from s6mod.runs.execute import MOST_AT_ONCE, stopping_politely

FOLDER = ".slurm"  # beside the run folders: what submitit writes
MINUTES = 240
LIMITS = 1000  # time limits that one job may meet
ARRAY = 1000  # jobs in flight unless told; what SLURM allows in an array unless set otherwise
STOP_SECONDS = 60.0
REFUSALS, REFUSED_SECONDS = 6, 5.0  # a job that has ended counts against limits until SLURM has cleared it away
LOG = "local.log"  # what submitit's processes say where there is no SLURM
SENT = "_submitted.pkl"  # submitit's file of a job, after its id
LIVE = ("PENDING", "RUNNING", "REQUEUED", "COMPLETING", "SUSPENDED")  # states of jobs that have not ended


@dataclass(frozen=True)
class SlurmLauncher:
    """Runs as SLURM jobs."""

    out: Path  # parent of the run folders
    gpu: bool
    minutes: int = MINUTES  # time limit of a job
    at_once: int | None = None  # runs in a GPU job
    workers: int | None = None  # jobs in flight, waiting or running
    retries: int | None = None  # of failed runs and of dead workers; None: dead workers only, ``DEATHS`` times
    sbatch: dict[str, str] = field(default_factory=dict)  # further options of sbatch

    @classmethod
    def checked(
        cls, out: Path, device: str, heavy: bool, minutes: int | None, sbatch: Sequence[str], **how: Any
    ) -> "SlurmLauncher":
        """``heavy``: the presets want GPUs, so ``--device auto`` asks SLURM for them. ``sbatch``: KEY=VALUE each."""
        require_installed("submitit", "--on slurm", "slurm")
        import submitit

        if shutil.which("srun") and not shutil.which("sbatch"):  # submitit looks for srun alone
            raise ConfigError(
                "expected sbatch beside srun for --on slurm, got no such command here; start the sweep on a login node"
            )
        options = {}
        for word in sbatch:
            key, equals, value = word.partition("=")
            if not equals or not key.strip("-") or key.strip("-") in ("time", "array"):
                raise ConfigError(
                    f"expected an option of sbatch such as partition=gpu, got {word!r}; "
                    "write KEY=VALUE (for the time use --time-limit, for the array --workers)"
                )
            options[key.strip("-").replace("-", "_")] = value
        gpu = wants_gpu(device)
        if gpu is None:
            gpu = torch.cuda.is_available() if submitit.AutoExecutor.which() == "local" else heavy
        return cls(out, gpu, minutes or MINUTES, sbatch=options, **how)

    @property
    def on_cpu(self) -> bool:
        """See ``Launcher``."""
        return not self.gpu

    def launch(self, jobs: Sequence[Job], watch: Watch) -> Outcome:
        """See ``Launcher``."""
        import submitit

        executor = submitit.AutoExecutor(
            self.out.absolute() / FOLDER, slurm_max_num_timeout=LIMITS, local_max_num_timeout=LIMITS
        )
        executor.update_parameters(
            name="s6mod",
            timeout_min=self.minutes,
            cpus_per_task=1,
            gpus_per_node=int(self.gpu),
            slurm_array_parallelism=self.workers or ARRAY,
            slurm_additional_parameters=self.sbatch,
        )
        here = executor.cluster == "local"
        if here:
            watch.say("no SLURM on this machine: the jobs run here, as processes")
        room = self.workers or ((1 if self.gpu else cores()) if here else ARRAY)
        begun = [] if here else jobs_begun(executor.folder, jobs)
        if begun:
            watch.say(f"{len(begun)} jobs of an earlier sweep are still with SLURM; they are waited for")
        taken = {job.folder for _, pack in begun for job in pack.jobs}
        fresh = [job for job in jobs if job.folder.absolute() not in taken]
        packs = make_packs(fresh, 0 if self.gpu else None, self.at_once or MOST_AT_ONCE)
        pool = _SlurmPool(executor, room, self.retries or 0, DEATHS if self.retries is None else self.retries, begun)
        with stopping_politely() as request:
            return ClusterSweep(pool, packs, watch, request).work()


class _SlurmPool:
    """Jobs of submitit with their packs."""

    def __init__(
        self, executor: Any, room: int, retries: int, deaths: int, begun: Sequence[tuple[Any, Pack]] = ()
    ) -> None:
        self.executor, self.room, self.retries, self.deaths = executor, room, retries, deaths
        self.begun: Sequence[Pack] = [pack for _, pack in begun]
        self.earlier = {job.job_id for job, _ in begun}
        self.jobs = list(begun)
        self.trusted = bool(begun)  # SLURM has taken jobs as these

    def submit(self, packs: Sequence[Pack]) -> None:
        """Take packs, as one array."""
        from submitit.core.utils import FailedJobError

        for left in reversed(range(REFUSALS + 1 if self.trusted else 1)):
            try:
                with _saying_into(self.executor.folder) if self.executor.cluster == "local" else nullcontext():
                    jobs = self.executor.map_array(PackJob(), packs)
                self.jobs += zip(jobs, packs, strict=True)
                self.trusted = True
                return
            except FailedJobError as error:  # sbatch refused
                if not left:
                    raise _refused(error, len(packs)) from None
                time.sleep(REFUSED_SECONDS)

    def ended(self) -> Iterable[tuple[Pack, Report | str]]:
        """Packs whose jobs have ended and are not queued again."""
        ended = [(job, pack) for job, pack in self.jobs if _over(job)]
        self.jobs = [each for each in self.jobs if each not in ended]
        for job, pack in ended:
            if job.job_id in self.earlier:  # what it reports may be about other runs too; the folders tell
                yield pack, f"job {job.job_id} has ended"
            elif job.exception() is None:
                yield pack, job.result()
            else:
                yield pack, f"job {job.job_id} left no result; see {job.paths.stderr}"

    def stop(self) -> None:
        """Cancel the jobs; each run under way saves its state when it is told."""
        for job, _ in self.jobs:
            job.cancel(check=False)
        deadline = time.monotonic() + STOP_SECONDS
        while any(not job.done(force_check=True) for job, _ in self.jobs) and time.monotonic() < deadline:
            time.sleep(1)


@contextmanager
def _saying_into(folder: Path) -> Iterator[None]:
    """What processes that start meanwhile say goes to a file: submitit's own say a traceback when they are stopped."""
    terminal = os.dup(2)
    try:
        with (folder / LOG).open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _refused(error: Exception, number: int) -> ConfigError:
    lines = str(error).strip().splitlines()
    told = [line for line in lines if line.startswith("sbatch: ")] or lines[-1:]  # advice to read its help may follow
    why = "; ".join(line.rstrip(".") for line in dict.fromkeys((told[0], told[-1])))
    return ConfigError(
        f"expected SLURM to take the jobs ({number}), got: {why}; "
        "mend --sbatch or --time-limit, or send fewer at once with --workers"
    )


def _over(job: Any) -> bool:
    """Whether a job has ended and is not queued again."""
    if not job.done():
        return False
    if job.paths.result_pickle.exists() or not _alive(job.job_id, job.state):
        return True
    job.watcher._finished.discard(job.job_id)  # submitit takes it for ended, if suspended say, and would ask no more
    return False


def _alive(number: str, state: str | None) -> bool:
    """Whether a job has not ended, by what sacct says.

    Of a preempted job that waits to run again, sacct says PREEMPTED until it does; the queue knows better.
    """
    if state != "PREEMPTED":
        return state in LIVE
    command = ["squeue", "--noheader", "--format=%T", f"--jobs={number}"]
    answer = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 - no shell; a number of SLURM's own
    return bool(answer.stdout.strip()) if answer.returncode == 0 else "Invalid job id" not in answer.stderr


def jobs_begun(folder: Path, jobs: Sequence[Job]) -> list[tuple[Any, Pack]]:
    """Jobs that an earlier sweep left with SLURM, each with those of ``jobs`` that it has.

    Locks on run folders do not reach from node to node on every file system, so no run may be sent twice.
    """
    import submitit
    from submitit.core.utils import JobPaths
    from submitit.helpers import DelayedSubmission

    wanted = {job.folder.absolute() for job in jobs}
    sent = [file.name.removesuffix(SENT) for file in sorted(folder.glob(f"*{SENT}"))]
    unsettled = [number for number in sent if not JobPaths(folder, number, 0).result_pickle.exists()]
    states = _states(folder, {number.partition("_")[0] for number in unsettled}) if unsettled else {}
    found = []
    for number in unsettled:
        if not _alive(number, states.get(number, {}).get("State")):
            continue
        pack: Pack = DelayedSubmission.load(folder / f"{number}{SENT}").args[0]
        here = tuple(each for each in pack.jobs if each.folder in wanted)
        if here:
            found.append((submitit.SlurmJob(folder, number), replace(pack, jobs=here)))
    return found


def _states(folder: Path, arrays: Iterable[str]) -> dict[str, dict[str, str]]:
    """What SLURM knows of the jobs; not through submitit, which takes no answer for an unknown job."""
    import submitit

    command = ["sacct", "--parsable2", "-o", "JobID,State,NodeList"]
    for array in sorted(arrays):
        command += ["-j", array]
    try:
        # No shell reads the words, and jobs are named by the files of our own sweep.
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1].rstrip(".")
        raise ConfigError(
            f"expected sacct to tell which jobs of an earlier sweep are left, got: {why}; "
            f"try again when it answers, or remove {folder} if squeue shows none of them"
        ) from None
    states: dict[str, dict[str, str]] = submitit.SlurmJob.watcher.read_info(told)
    return states


def preempted() -> bool:
    """Whether SLURM wants the place of this job for another one.

    It then sends SIGTERM and waits, as for a job that is cancelled. One that ends meanwhile has ended for good.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    number = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    if number is None or os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return False
    command = ["scontrol", "show", "job", number]
    told = subprocess.run(command, capture_output=True, text=True).stdout  # noqa: S603 - no shell; our own number
    return "JobState=RUNNING" in told and re.search(r"\bPreemptTime=\d", told) is not None


class PackJob:
    """What a job does: its pack; before the time limit or when it is preempted, a polite stop and back to the queue.

    submitit would save and leave in the middle of a step; here the runs end their step and save first.
    """

    def __call__(self, pack: Pack) -> Report:
        """The job."""
        requeue: Any = signal.getsignal(signal.SIGUSR2)  # submitit's: queues the job again and exits
        idle = signal.getsignal(signal.SIGTERM)
        asked = False

        def ask(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            if asked:
                return
            asked = True
            if signal.getsignal(signal.SIGTERM) == idle:  # no run is under way
                requeue(number, frame)
            else:
                signal.raise_signal(signal.SIGTERM)

        signal.signal(signal.SIGUSR2, ask)
        report = pack.run()
        if report.stopped:
            if asked or preempted():
                requeue(signal.SIGUSR2, None)
            sys.exit(128 + signal.SIGTERM)  # cancelled: no result, so that SLURM may queue it again if it wants
        return report

    def checkpoint(self, pack: Pack) -> Any:
        """What submitit queues again: the same, since the run folders hold the state."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, pack)
