"""``s6mod tune`` from its words to its preset: what is asked for, and a search carried out on this machine."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s6mod.config import assign, merge, read_yaml
from s6mod.errors import ConfigError, require_installed
from s6mod.experiments.launch import LocalLauncher
from s6mod.experiments.plan import refuse_cpu
from s6mod.tuning.config import TuneConfig, Tuning
from s6mod.tuning.launch import launch
from s6mod.tuning.outcome import first_failure, write_outcome
from s6mod.tuning.space import parse_search
from s6mod.tuning.study import open_study


def compose_tuning(
    words: Sequence[str], search: Sequence[str], assignments: Sequence[str], given: Mapping[str, Any]
) -> TuneConfig:
    """The tuning of the file and cell among ``words``, with the options laid over it; those ``given`` as None are not.

    ``given`` may say ``whole_stream``, for no number of tasks.
    """
    require_installed("optuna", "tuning", "hpo")
    files = [Path(word) for word in words if word.endswith((".yaml", ".yml"))]
    cells = [word for word in words if Path(word) not in files]
    if len(files) > 1 or len(cells) > 1:
        raise ConfigError(f"expected one cell and one file at most, got {', '.join(words)}; leave out the others")
    values: dict[str, Any] = read_yaml(files[0]) if files else {}
    values |= {name: value for name, value in given.items() if value is not None and name != "whole_stream"}
    values |= {"cell": cells[0]} if cells else {}
    values |= {"tasks": None} if given.get("whole_stream") else {}
    values["search"] = {**values.get("search", {}), **parse_search(list(search))}
    fixed: dict[str, Any] = {}
    for assignment in assignments:
        fixed = assign(fixed, assignment)
    values["set"] = merge(values.get("set", {}), fixed)
    return TuneConfig.parse(values)


@dataclass(frozen=True)
class Found:
    """What came out of a search."""

    best: str | None  # the best trial in words; None: no trial is complete
    failure: str | None  # if so, why the first that failed did
    signal: int | None  # that stopped it
    folder: Path

    @property
    def ending(self) -> tuple[int, list[str]]:
        """The exit code, and what is to be said of how it ended."""
        if self.signal is not None:
            name = signal.Signals(self.signal).name
            return 128 + self.signal, [f"stopped by {name}; the same command goes on"]
        if self.best is None:
            reason = f", the first as: {self.failure}" if self.failure else ""
            raise ConfigError(f"expected a complete trial, got none{reason}; see all in {self.folder / 'history.json'}")
        return 0, []


def search(tuning: Tuning, device: str, workers: int | None, yes: bool, say: Callable[[str], None]) -> Found:
    """Carry a search out, as far as its trials or a signal let it. ``yes``: also on a CPU what is meant for a GPU."""
    tuning.check()
    here = LocalLauncher.here(device, workers, None, 0)
    refuse_cpu(tuning.costs(), yes or not here.on_cpu)
    tuning = tuning.on_present_data()
    study = open_study(tuning)
    devices = [here.devices[number % len(here.devices)] for number in range(workers or len(here.devices))]
    stopped = launch(tuning, devices, here.threads, say)
    preset = write_outcome(tuning, study)
    best = None if preset is None else f"best: trial {study.best_trial.number}, {study.best_value:.2f} %: {preset}"
    return Found(best, first_failure(study) if best is None else None, stopped, tuning.folder)
