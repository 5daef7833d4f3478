"""A sweep: which trainings give the results that are wanted, which of them are done, and what the others will cost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from s6mod.config import Config, assign, merge, read_yaml
from s6mod.data import DataConfig
from s6mod.errors import ConfigError
from s6mod.experiments.costs import Cost, cost
from s6mod.paper.published import table
from s6mod.runs.cells import Cell, parse_all, whole_field
from s6mod.runs.compose import fitted
from s6mod.runs.config import RunConfig
from s6mod.runs.store import Store, StoredRun, scan


class SweepConfig(Config):
    """What a sweep's YAML file may hold; the options of the command line lie over it."""

    cells: list[str] = Field([], description="names of cells; data set and memory may be left to the fields below")
    tables: list[str] = Field([], description="tables of the paper, all cells of which are wanted")
    controls: bool = Field(
        False,
        description="add both controls to every cell of the tables, and S6MOD in its other settings",
    )
    data: str | None = Field(None, description="data set of cells that name none, or the path of own data")
    memory: int | None = Field(None, ge=1, description="memory size of cells that name none")
    seeds: str | list[int] | None = Field(
        None, description="0-4 or [0, 2, 5]; none: as many as the paper has, or 0-2 for single cells"
    )
    set: dict[str, Any] = Field({}, description="fields of the configuration, laid over every cell")


@dataclass(frozen=True)
class Job:
    """One training, in one folder."""

    name: str  # for a person; no two of a sweep share it
    config: RunConfig
    folder: Path


@dataclass(frozen=True)
class Sweep:
    """The results wanted, and the trainings that give them."""

    results: int
    done_results: int
    jobs: list[Job]  # trainings that remain
    done: list[Path]  # folders or records of those that are there
    costs: list[Cost | None]  # of each job
    read: frozenset[DataConfig]  # data that was read to see what is done: it is there

    @property
    def trainings(self) -> int:
        """All of them, done or not."""
        return len(self.jobs) + len(self.done)

    def finished(self) -> list[StoredRun]:
        """The runs among them that have a result by now."""
        return scan([*self.done, *(job.folder for job in self.jobs if job.folder.is_dir())]).finished


def compose_sweep(words: Sequence[str], given: Mapping[str, Any]) -> SweepConfig:
    """The sweep of the cells and YAML files among ``words``, with the fields ``given`` laid over it, None left out."""
    files = [Path(word) for word in words if word.endswith((".yaml", ".yml"))]
    values: dict[str, Any] = {}
    for file in files:
        values = merge(values, SweepConfig.parse(read_yaml(file)).model_dump(exclude_unset=True))
    given = {"cells": [word for word in words if Path(word) not in files] or None, **given}
    config = SweepConfig.parse(values | {name: value for name, value in given.items() if value is not None})
    if config.controls and not config.tables:
        raise ConfigError(
            "expected --controls with --tables, got it with cells alone; name cells such as er+confidence"
        )
    return config


def wanted(config: SweepConfig, data_folder: str | None = None) -> list[tuple[Cell, int]]:
    """Every result wanted, each once: cells with their seeds."""
    results: dict[tuple[Cell, int], None] = {}
    for name in config.tables:
        chosen = table(name)
        for cell in chosen.cells(config.controls):
            results |= dict.fromkeys((cell, seed) for seed in _seeds(config, chosen.seeds))
    for cell in parse_all(config.cells, config.data, config.memory, data_folder):
        results |= dict.fromkeys((cell, seed) for seed in _seeds(config, (0, 1, 2)))
    if not results:
        raise ConfigError("expected cells or tables to run, got none; try s6mod sweep er,er+s6mod --data digits")
    return list(results)


def make_sweep(
    config: SweepConfig, assignments: Sequence[str], elsewhere: dict[str, Any], out: Path, store: Store
) -> Sweep:
    """Work out the trainings of a sweep, with each ``key=value`` of ``assignments`` laid over every cell."""
    if "seed" in config.set or any(word.partition("=")[0].strip() == "seed" for word in assignments):
        raise ConfigError("expected the seeds of a sweep in --seeds, got one among its fields; give --seeds")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"expected a folder for the runs, got the file {out}; choose another --out")
    over = config.set
    for assignment in assignments:
        over = assign(over, assignment)
    results = wanted(config, elsewhere.get("data", {}).get("root"))
    return sweep_of(results, over, elsewhere, out, store)


def sweep_of(
    results: Sequence[tuple[Cell, int]], over: dict[str, Any], elsewhere: dict[str, Any], out: Path, store: Store
) -> Sweep:
    """The sweep for cells with their seeds; ``elsewhere``: device and data folder, which do not name a run.

    A training that is in the store under its present hash is done; on own data, if that has the same contents still.
    """
    stored = _Stored(store)
    values: dict[Cell, dict[str, Any]] = {}
    names: dict[Cell, str] = {}
    jobs: dict[str, Job] = {}
    done: dict[str, Path] = {}
    done_results = 0
    for cell, seed in results:
        if cell.training not in values:
            given = merge(cell.values(), over)
            if "engine" in elsewhere:
                refuse_device(given)
            names[cell.training] = _name(cell.training, given, over)
            values[cell.training] = fitted(merge(given, elsewhere))
        run = RunConfig.parse(values[cell.training] | {"seed": seed})
        name = run.hash
        folder = out / run.folder_name
        finished = stored.finished(run, folder)
        if finished is not None:
            done[name] = finished
            done_results += 1
        else:
            run.check()
            jobs[name] = Job(f"{names[cell.training]} seed {seed}", run, folder)
    remaining = list(jobs.values())
    costs = [cost(job.config.plain()) for job in remaining]
    return Sweep(len(results), done_results, remaining, list(done.values()), costs, frozenset(stored.fingerprints))


def _name(cell: Cell, given: dict[str, Any], over: dict[str, Any]) -> str:
    """The cell's name without changes that ``over`` took the place of: one that no other values have."""
    told = replace(cell, changes=tuple(each for each in cell.changes if assign(given, whole_field(each)) == given))
    return (told if merge(told.values(), over) == given else cell).name


def refuse_device(values: Mapping[str, Any]) -> None:
    """Refuse a device among the fields of runs that are told theirs otherwise: it would have no effect."""
    engine = values.get("engine", {})
    if not isinstance(engine, Mapping) or "device" in engine:
        raise ConfigError("expected the device in --device, got engine.device among the fields; give --device")


class _Stored:
    """Runs of a store by their hashes. Own data is read, once, if there is a run that may be on it."""

    def __init__(self, store: Store) -> None:
        self.runs: dict[str, list[StoredRun]] = defaultdict(list)
        for run in store.runs:
            self.runs[run.hash].append(run)
        self.fingerprints: dict[DataConfig, str] = {}

    def finished(self, config: RunConfig, folder: Path) -> Path | None:
        """Where the result of a run is, if there is one; the ``folder`` it goes to must not have one on other data."""
        found = None
        for run in self.runs.get(config.hash, []):
            if self._is_on(config.data, run):
                found = run.path if run.result is not None else found
            elif run.path == folder:
                raise ConfigError(
                    f"expected the contents of {config.data.name} that {folder} was begun on, got others; "
                    "choose another --out, or rename the data"
                )
        return found

    def _is_on(self, data: DataConfig, run: StoredRun) -> bool:
        if run.own_data is None:
            return True
        if data not in self.fingerprints:
            self.fingerprints[data] = data.load().fingerprint
        return run.own_data == self.fingerprints[data]


def numbers(text: str) -> list[int]:
    """``0-3,7`` -> 0, 1, 2, 3, 7; at most 10,000 of them, as more are a slip of the finger."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 100:
            raise ConfigError(f"expected seeds such as 0-4 or 0,2,5, got {text!r}; change them")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ConfigError(f"expected seeds from low to high, got {part.strip()!r}; swap them")
        found |= dict.fromkeys(span[:10_001])
        if len(found) > 10_000:
            raise ConfigError(f"expected at most 10,000 seeds, got more in {text!r}; ask for fewer")
    return list(found)


def _seeds(config: SweepConfig, usual: Iterable[int]) -> Iterable[int]:
    if config.seeds is None:
        return usual
    return numbers(config.seeds) if isinstance(config.seeds, str) else config.seeds
