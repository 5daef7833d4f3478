"""The run store: run folders are the truth, and public records stand for runs made elsewhere.

There is no index that could be wrong: a scan reads the small files of each run. Nothing here imports torch.
"""

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from s6mod.errors import CheckpointError, ConfigError
from s6mod.experiments.records import Unsealed, read_result
from s6mod.experiments.schema import complete, run_hash, setting

FAILURE = "failure.txt"  # in a run folder: the traceback of the attempt that failed
HOMES = (Path("runs"), Path("results"))  # where a store is looked for unless told

Status = Literal["finished", "running", "stopped", "failed"]
STATUSES: tuple[Status, ...] = ("finished", "running", "stopped", "failed")


@dataclass(frozen=True)
class StoredRun:
    """One run as the store has it; what depends on the configuration is by the present code."""

    path: Path  # its folder, or its record
    status: Status
    config: dict[str, Any]  # complete
    environment: dict[str, Any]
    result: dict[str, Any] | None  # without matrices; None unless finished

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.config["seed"])

    @property
    def cell(self) -> str:
        """``RunConfig.cell``."""
        branch = f"+{self.config['branch']['name']}" if self.config["branch"] else ""
        return f"{self.config['method']['name']}{branch}/{self.config['data']['name']}/{self.config['memory_size']}"

    @cached_property
    def hash(self) -> str:
        """Names the run as the present code would."""
        return run_hash(self.config)

    @cached_property
    def setting(self) -> str:
        """What was run, whatever the seed and the engine."""
        return setting(self.config)

    @property
    def precision(self) -> str:
        """What it computed in: ``auto`` is bfloat16 on a GPU and float32 on a CPU."""
        asked = str(self.config["engine"]["precision"])
        return asked if asked != "auto" else "float32" if self.environment["device"] == "cpu" else "bfloat16"

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
    kept: dict[tuple[str, str, bool], StoredRun] = {}
    for run in found:
        kept.setdefault((run.hash, run.precision, run.result is not None), run)
    done = {(key, precision) for key, precision, finished in kept if finished}
    runs = [run for run in kept.values() if run.result is not None or (run.hash, run.precision) not in done]
    return Store(runs, problems, sum(run.result is not None for run in found) - len(done))


def _candidates(folder: Path) -> list[Path]:
    if folder.is_file() or (folder / "config.json").exists():
        return [folder]
    if not folder.is_dir():
        raise ConfigError(f"expected a folder with runs or records, got {folder}; check the path")
    with os.scandir(folder) as entries:
        paths = [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
    return sorted(path for path in paths if path.suffix == ".json" or not path.suffix or path.is_dir())


def _read_run(path: Path) -> StoredRun | None:
    """The run in a folder or record; None for a folder without a run."""
    if path.suffix == ".json" and path.is_file():
        return _finished(path, read_result(path, sealed=True))
    try:
        return _finished(path, read_result(path / "result.json", sealed=False))
    except CheckpointError:
        if (path / "result.json").exists():
            raise
    try:
        content = json.loads((path / "config.json").read_text(encoding="utf-8"))
        config, environment = complete(content["config"]), content["environment"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"expected a run's configuration, got a damaged {path / 'config.json'}; restore it or remove its folder"
        ) from None
    status: Status = "running" if held(path) else "failed" if (path / FAILURE).exists() else "stopped"
    return StoredRun(path, status, config, environment, None)


def _finished(path: Path, result: dict[str, Any]) -> StoredRun:
    try:
        return StoredRun(path, "finished", complete(result["config"]), result["environment"], result)
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(f"expected a whole configuration in {path}, got parts of one; run it again") from None


def held(folder: Path) -> bool:
    """Whether a process has the run in this folder under way."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
