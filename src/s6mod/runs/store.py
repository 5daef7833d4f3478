"""The run store: run folders are the truth, and public records stand for runs made elsewhere.

There is no index that could be wrong: a scan reads the small files of each run. How a record is found is told in
docs/reference/runs.md.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from s6mod.errors import CheckpointError, ConfigError
from s6mod.files import read_json
from s6mod.locks import held
from s6mod.presets import datasets
from s6mod.run_files import RunFiles
from s6mod.runs.cells import Cell
from s6mod.runs.commits import FILE as COMMITS
from s6mod.runs.completion import complete, departures, engine_departures, setting
from s6mod.runs.contents import Begun
from s6mod.runs.name import cell, run_hash
from s6mod.runs.records import Unsealed, read_result

HOMES = (Path("runs"), Path("results"))  # where a store is looked for unless told

Status = Literal["finished", "running", "stopped", "failed"]
STATUSES: tuple[Status, ...] = ("finished", "running", "stopped", "failed")


@dataclass(frozen=True)
class StoredRun:
    """One run as the store has it; what depends on the configuration is by the present code."""

    path: Path  # its folder, or its record
    status: Status
    hash: str  # names the run as the present code would
    config: dict[str, Any]  # complete
    environment: dict[str, Any]
    result: dict[str, Any] | None  # without matrices; None unless finished
    own_data: str | None = None  # fingerprint of own data, which may change behind its name

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.config["seed"])

    @property
    def cell(self) -> str:
        """The experiment without its seed."""
        return cell(self.config)

    @cached_property
    def setting(self) -> str:
        """What was run, whatever the seed and the engine."""
        return setting(self.config)

    @cached_property
    def changes(self) -> list[str]:
        """How it departs from the preset of its cell, as in a cell's name: a bare key is an option of the branch."""
        usual = _usual(Cell.of(self.config))
        found = departures(self.config, usual) + engine_departures(self.config, usual)
        return [change.removeprefix("branch.") for change in found]

    @property
    def precision(self) -> str:
        """What it computed in: ``auto`` is bfloat16 on a GPU and float32 on a CPU."""
        asked = str(self.config["engine"]["precision"])
        return asked if asked != "auto" else "float32" if self.environment["device"] == "cpu" else "bfloat16"

    @property
    def numerics(self) -> int | None:
        """The number of what its steps computed; None: from before it was counted."""
        number = self.environment.get("numerics")
        return None if number is None else int(number)

    def metric(self, name: str, scores: str | None = None) -> float | None:
        """A metric in percent, of one score table (None: the primary one); None if the run has none such."""
        if self.result is None:
            return None
        metrics = self.result["metrics"].get(scores or self.result["primary"], {})
        return None if metrics.get(name) is None else float(metrics[name])


@dataclass(frozen=True)
class Store:
    """What was found, each run once, and a sentence for each thing that could not be read or counts for nothing."""

    runs: list[StoredRun]
    problems: list[str]
    repeated: int  # results left out because another of the same run, seed and precision came first

    @property
    def finished(self) -> list[StoredRun]:
        """Those that have a result."""
        return [run for run in self.runs if run.result is not None]


def homes() -> list[Path]:
    """The folders of ``HOMES`` that are here."""
    return [folder for folder in HOMES if folder.is_dir()]


def scan(folders: Iterable[Path]) -> Store:
    """All runs right below the folders: run folders and records. A run folder or a record may also be given itself.

    Of two results of the same run and precision the first counts, in the order of folders and then of names.
    """
    found: list[StoredRun] = []
    problems: list[str] = []
    for folder in folders:
        unsealed = 0
        for path in _candidates(folder):
            try:
                run = _read_run(path)
            except Unsealed:
                unsealed += 1
            except CheckpointError as error:
                problems.append(str(error))
            else:
                found += [run] if run is not None else []
        if unsealed:
            problems.append(
                f"expected a checksum in every record, got {unsealed} without one in {folder}; "
                f"adopt them with: s6mod runs adopt {folder}"
            )
    kept: dict[tuple[str, str | None, str, bool], StoredRun] = {}
    for run in found:
        kept.setdefault((run.hash, run.own_data, run.precision, run.result is not None), run)
    done = {key[:3] for key in kept if key[3]}
    runs = [run for key, run in kept.items() if key[3] or key[:3] not in done]
    return Store(_called_apart(runs), problems, sum(run.result is not None for run in found) - len(done))


def _candidates(folder: Path) -> list[Path]:
    if folder.is_file() or RunFiles(folder).config.exists():
        return [folder]
    if not folder.is_dir():
        raise ConfigError(
            f"expected a folder with runs or records, got no folder {folder}; "
            "check the path, or make runs with s6mod train"
        )
    with os.scandir(folder) as entries:
        paths = [Path(entry.path) for entry in entries if not entry.name.startswith(".") and entry.name != COMMITS]
    return sorted(path for path in paths if path.suffix == ".json" or not path.suffix or path.is_dir())


def _read_run(path: Path) -> StoredRun | None:
    """The run in a folder or record; None for a folder without a run."""
    if path.suffix == ".json" and path.is_file():
        result = read_result(path, sealed=True)
        return _stored(path, "finished", result, result)
    files = RunFiles(path)
    try:
        result = read_result(files.result, sealed=False)
        return _stored(path, "finished", result, result)
    except CheckpointError:
        if files.result.exists():
            raise
    try:
        content = read_json(files.config)
        Begun.model_validate(content)
        status: Status = "running" if held(path) else "failed" if files.failure.exists() else "stopped"
        return _stored(path, status, content, None)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise CheckpointError(
            f"expected a run's configuration, got a damaged {files.config}; restore it or remove its folder"
        ) from None


def _stored(path: Path, status: Status, content: dict[str, Any], result: dict[str, Any] | None) -> StoredRun:
    """A run by the content of its ``config.json`` or its result."""
    try:
        config = complete(content["config"])
    except ConfigError as error:
        raise CheckpointError(f"{error} (in {path})") from None
    own_data = None if config["data"]["name"] in datasets() else content.get("data")
    return StoredRun(path, status, run_hash(config), config, content["environment"], result, own_data)


def _called_apart(runs: list[StoredRun]) -> list[StoredRun]:
    """The same runs; where own data of one name, read alike, has several contents, its name gets their fingerprint.

    Cells and settings follow from the name, so that nothing takes the results of one for those of the other.
    """

    def read(run: StoredRun) -> str:
        return repr([value for key, value in run.config["data"].items() if key != "root"])

    fingerprints = defaultdict(set)
    for run in runs:
        fingerprints[read(run)].add(run.own_data)

    def named(run: StoredRun) -> StoredRun:
        if len(fingerprints[read(run)]) == 1:
            return run
        data = run.config["data"]
        return replace(run, config=run.config | {"data": data | {"name": f"{data['name']}-{str(run.own_data)[:6]}"}})

    return [named(run) for run in runs]


@functools.cache
def _usual(cell: Cell) -> dict[str, Any]:
    """The complete configuration of a preset, which all runs of a cell are compared with."""
    return complete(cell.values())


def settled(folder: Path) -> bool:
    """Whether the run in this folder has a result that can be read."""
    try:
        read_result(RunFiles(folder).result, sealed=False)
    except CheckpointError:
        return False
    return True
