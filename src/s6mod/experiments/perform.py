"""A sweep from its door to its end: who runs it, what is refused before it begins, what is shown and said after it."""

import signal
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from s6mod.data import make_plan
from s6mod.errors import ConfigError
from s6mod.experiments.follow import Onlooker
from s6mod.experiments.launch import Launcher, LocalLauncher, Outcome
from s6mod.experiments.launch_ray import RayLauncher
from s6mod.experiments.launch_slurm import SlurmLauncher
from s6mod.experiments.plan import count, refuse_cpu
from s6mod.experiments.progress import SweepDisplay
from s6mod.experiments.sweep import Sweep
from s6mod.paper.render import show
from s6mod.paper.tables import Results, filled
from s6mod.trackers import require


@dataclass(frozen=True)
class Means:
    """Where the runs of a sweep are run, and with how much."""

    device: str = "auto"
    workers: int | None = None
    at_once: int | None = None  # runs that share a GPU
    retries: int | None = None  # of a run that fails; None: as the launcher has it
    on: str = "local"  # or ray, slurm
    address: str | None = None  # of a Ray
    time_limit: int | None = None  # minutes of a SLURM job
    sbatch: tuple[str, ...] = ()  # options of sbatch, KEY=VALUE

    def launcher(self, todo: Sweep, out: Path) -> Launcher:
        """The launcher that was chosen, connected and checked; ``out``: parent of the run folders."""
        if self.address is not None and self.on != "ray":
            raise ConfigError(f"expected --address with --on ray, got it with --on {self.on}; drop one of them")
        if (self.time_limit is not None or self.sbatch) and self.on != "slurm":
            raise ConfigError(
                f"expected --time-limit and --sbatch with --on slurm, got --on {self.on}; drop one of them"
            )
        if self.on == "ray":
            return RayLauncher.connected(self.address, self.device, self.workers, self.at_once, self.retries)
        if self.on == "slurm":
            heavy = any(cost is not None and cost.wants_gpu for cost in todo.costs)
            how = {"workers": self.workers, "at_once": self.at_once, "retries": self.retries}
            return SlurmLauncher.checked(out, self.device, heavy, self.time_limit, self.sbatch, **how)
        return LocalLauncher.here(self.device, self.workers, self.at_once, self.retries or 0)


def perform(
    todo: Sweep, launcher: Launcher, console: Console, yes: bool = False, quiet: bool = False, advice: str = ""
) -> Outcome:
    """Take the jobs to their ends, with a display. ``yes``: also on a CPU what is meant for a GPU."""
    _check(todo, yes or not launcher.on_cpu, advice)
    with SweepDisplay(console, todo.jobs, todo.costs, quiet) as display:
        return launcher.launch(todo.jobs, display)


def attach(todo: Sweep, console: Console, quiet: bool) -> Outcome:
    """Watch the runs of a sweep that goes on elsewhere."""
    with SweepDisplay(console, todo.jobs, todo.costs, quiet) as display:
        return Onlooker().launch(todo.jobs, display)


def show_finished(todo: Sweep, console: Console) -> tuple[int, int]:
    """Print the table of what came out; how many runs have a result, and how many of these it has no room for."""
    runs = todo.finished()
    results = Results(runs)
    if runs:
        show(filled("all", results), console)
    return len(runs), results.repeated


def ending(todo: Sweep, outcome: Outcome, finished: int, watching: bool = False) -> tuple[int, list[str]]:
    """The exit code of a sweep of which so many runs are finished, and what is to be said of how it ended."""
    if outcome.signal is not None:
        left = f"with {todo.trainings - finished} of {count(todo.trainings, 'run')} to go"
        stopped = f"stopped by {signal.Signals(outcome.signal).name} {left}; the same command goes on"
        return 128 + outcome.signal, [f"no longer watching, {left}; the sweep goes on" if watching else stopped]
    failures = [f"failed: {job}: {reason}" for job, reason in outcome.failures.items()]
    return int(bool(failures)), failures


def _check(todo: Sweep, yes: bool, advice: str) -> None:
    """Refuse at the door what cannot work or would take for ever."""
    refuse_cpu(todo.costs, yes, advice)
    for data in {job.config.data for job in todo.jobs} - todo.read:
        found = data.load()  # a data set that is not there is one sentence now, not a failure of every run
        for stream in {job.config.stream for job in todo.jobs if job.config.data == data}:
            make_plan(found.train_labels, found.num_classes, stream, seed=0)  # the same of tasks that it cannot fill
    for job in todo.jobs[:1]:
        require(job.config.output.track)
