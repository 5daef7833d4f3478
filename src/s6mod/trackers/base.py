"""The contract of a tracker, and where the known ones are; their libraries are imported when one is chosen.

A tracker knows no run and no learner: it is handed named numbers by step.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from s6mod.config import nearest
from s6mod.errors import ConfigError, require_installed

KNOWN = {  # by name, which is the extra's as well: the class, and the libraries that it needs
    "tensorboard": ("s6mod.trackers.tensorboard:TensorBoard", ("tensorboard",)),
    "wandb": ("s6mod.trackers.wandb:WandB", ("wandb",)),
    "mlflow": ("s6mod.trackers.mlflow:MLflow", ("mlflow", "sqlalchemy", "alembic")),
}


@dataclass(frozen=True)
class Subject:
    """The run that is mirrored."""

    folder: Path
    cell: str
    seed: int
    hash: str
    config: dict[str, Any]  # plain values

    @property
    def name(self) -> str:
        """For a person."""
        return f"{self.cell} seed {self.seed}"


class Tracker(ABC):
    """One run in somebody else's store. Whatever a method raises costs the mirror, never the run."""

    live: ClassVar[bool] = False
    """Whether it gets records at once, since it can take back what a restart cuts off; else when they are safe."""

    run_id: str  # names the run in the store; handed back after a restart
    next_step: int  # records of earlier steps are in the store already

    @abstractmethod
    def __init__(self, subject: Subject, run_id: str | None) -> None:
        """Open the run in the store: a new one, or ``run_id``."""

    @abstractmethod
    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step, of one record or of several; steps never fall."""

    @abstractmethod
    def end(self, step: int, values: Mapping[str, float]) -> None:
        """The run has come to its end with these results."""

    @abstractmethod
    def close(self) -> None:
        """The run is left before its end."""


def check_name(name: str) -> str:
    """The name of a tracker, if it can be one."""
    if name not in KNOWN and ":" not in name:
        raise ConfigError(f"expected a known tracker or MODULE:CLASS, got {name!r}; {nearest(name, KNOWN)}")
    return name


def require(names: Iterable[str]) -> None:
    """Refuse, before any work is done, a tracker whose libraries are not installed."""
    for name in names:
        for library in KNOWN[check_name(name)][1] if name in KNOWN else ():
            require_installed(library, f"the tracker {name}", name)


def tracker_class(name: str) -> type[Tracker]:
    """The class of a tracker."""
    require([name])
    module, _, attribute = (KNOWN[name][0] if name in KNOWN else name).partition(":")
    found: type[Tracker] = getattr(importlib.import_module(module), attribute)
    return found
