"""Where a run stands: what a display is told, and what a checkpoint keeps beside the learner."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a display."""

    step: int
    steps: int
    task: int
    tasks: int
    samples_per_second: float
    terms: dict[str, float]
    accuracy: float | None  # mean over the tasks seen, at the latest evaluation
    ended: bool  # whether the task has just ended


class Watcher(Protocol):
    """Whoever wants to see a run go on."""

    def __call__(self, progress: Progress) -> None:
        """Called at each record."""


@dataclass
class Cursor:
    """The run's own state, beside the learner's."""

    position: int = 0  # batches learned
    rows: dict[str, list[list[float]]] = field(default_factory=dict)  # accuracy per table, after each task
    predictors: dict[str, list[float]] = field(default_factory=dict)  # accuracy by all that could predict, at the end
    seconds: float = 0.0  # this run's share of the time spent in training steps
    eval_seconds: float = 0.0
    runs_at_once: int = 1  # the most that ever shared the device with it
    logged: int = 0  # the position of the latest record of a step
    alarms: dict[str, int] = field(default_factory=dict)  # see raise_alarms
