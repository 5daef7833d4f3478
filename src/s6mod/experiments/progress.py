"""What the terminal shows while a sweep goes on: one bar for all of it, with the time left, and one for each run."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from s6mod.experiments.costs import Cost
from s6mod.experiments.sweep import Job


class SweepDisplay:
    """Bars on a terminal; elsewhere, one line when a run ends. A long run weighs more in the whole than a short one."""

    def __init__(self, console: Console, jobs: Sequence[Job], costs: Sequence[Cost | None], quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        known = [cost.hours for cost in costs if cost is not None]
        usual = sum(known) / len(known) if known else 1.0
        self.weights = {
            job.name: cost.hours if cost is not None else usual for job, cost in zip(jobs, costs, strict=True)
        }
        self.shares: dict[str, float] = {}  # done of each run, 0..1
        self.ended = self.lost = 0
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self.whole = self.bars.add_task("", total=sum(self.weights.values()), visible=bool(jobs))
        self.runs: dict[str, TaskID] = {}
        self._refresh()

    def __enter__(self) -> Self:
        self.bars.start()
        if not self.weights and not self.quiet:
            self.say("nothing to run: all of it is done")
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def progress(self, job: Job, step: int, steps: int) -> None:
        """A run has come to a step."""
        if job.name not in self.runs:
            self.runs[job.name] = self.bars.add_task(job.name, total=steps)
        self.bars.update(self.runs[job.name], completed=step)
        self.shares[job.name] = step / steps
        self._refresh()

    def done(self, job: Job) -> None:
        """A run has its result."""
        self.ended += 1
        self._end(job, 1.0)
        if not self.quiet and not self.console.is_terminal:
            self.say(f"{self.ended}/{len(self.weights)} done: {job.name}")

    def failed(self, job: Job, reason: str, again: bool) -> None:
        """A run has failed."""
        self.lost += not again
        self._end(job, 0.0 if again else 1.0)
        self.say(f"{job.name} failed{', will be tried again' if again else ''}: {reason}")

    def say(self, text: str) -> None:
        """A line above the bars."""
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _end(self, job: Job, share: float) -> None:
        self.shares[job.name] = share
        if job.name in self.runs:
            self.bars.remove_task(self.runs.pop(job.name))
        self._refresh()

    def _refresh(self) -> None:
        completed = sum(self.weights[name] * share for name, share in self.shares.items())
        failed = f", {self.lost} failed" if self.lost else ""
        self.bars.update(
            self.whole, completed=completed, description=f"{self.ended}/{len(self.weights)} runs done{failed}"
        )
