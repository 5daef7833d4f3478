"""What a report is made of: runs with their records and accuracy matrices, and study files, as they lie on disk.

Nothing is drawn here. A run in progress is read as far as it has come; what is damaged is refused in one sentence.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from safetensors import SafetensorError, safe_open

from s6mod.errors import CheckpointError, ConfigError
from s6mod.files import parse_json, plain_file, read_json
from s6mod.report.charts import Chart
from s6mod.run_files import RunFiles
from s6mod.runs.config import RunConfig
from s6mod.runs.store import StoredRun, scan

PARTS: dict[str, dict[str, type]] = {  # what a report reads in records, by kind
    "step": {"terms": dict, "figures": dict},
    "task": {"accuracy": dict},
    "evaluation": {"accuracy": dict},
    "confusion": {"classes": list, "counts": list},
}
NUMBERS = ("terms", "figures", "accuracy")  # parts of records that hold numbers alone
STUDY = "study.json"  # what an analysis leaves in its folder
MOST_STEPS = 2**53  # which a chart's axis can count
Matrix = list[list[float]]  # row i: percent on tasks 0 ... i after task i


@dataclass(frozen=True)
class RunData:
    """One run: what the store knows of it, and what only a report needs."""

    stored: StoredRun
    primary: str  # the score table that predicts
    matrices: dict[str, Matrix]  # by score table; of a run in progress, the tasks learned so far
    records: list[dict[str, Any]] = field(default_factory=list)  # none with a public record
    planned_steps: int | None = None

    def of_kind(self, *kinds: str) -> list[dict[str, Any]]:
        """Its records of some kinds, in their order."""
        return [record for record in self.records if record["kind"] in kinds]

    @property
    def step(self) -> int:
        """Batches learned, as far as the records tell."""
        return int(self.records[-1]["step"]) if self.records else int((self.stored.result or {}).get("steps", 0))

    @property
    def matrix(self) -> Matrix:
        """That of the primary score table."""
        return self.matrices.get(self.primary, [])

    @property
    def class_names(self) -> list[str]:
        """By label; empty before the run has ended."""
        return [str(name) for name in (self.stored.result or {}).get("class_names", [])]

    def class_name(self, label: int) -> str:
        """The name of a class, or its number."""
        return self.class_names[label] if label < len(self.class_names) else f"class {label}"


@dataclass(frozen=True)
class StudyFile:
    """Charts and tables that another command has made of runs."""

    title: str
    text: str
    charts: list[Chart]
    tables: list[tuple[str, list[str], list[list[Any]]]]  # title, columns, rows


def read_runs(paths: Sequence[Path]) -> list[RunData]:
    """The runs in these folders and records, or right below these folders."""
    found = scan(paths)
    if found.problems:
        raise CheckpointError(found.problems[0])
    for path in paths:
        if not any(run.path == path or run.path.parent == path for run in found.runs) and not scan([path]).runs:
            raise ConfigError(f"expected a run or a folder with runs, got {path} without any; check the path")
    return [_read(run) for run in found.runs]


def read_study(path: Path) -> StudyFile:
    """A study file, or the one in a study's folder."""
    file = path / STUDY if path.is_dir() else path
    try:
        content = read_json(file)
        if content["kind"] != "study":
            raise ValueError
        charts = [
            Chart(*(_text(part[key]) for key in ("name", "title", "svg", "csv", "alt"))) for part in content["figures"]
        ]
        tables = [
            (_text(part["title"]), [_text(name) for name in part["columns"]], [list(row) for row in part["rows"]])
            for part in content["tables"]
        ]
        if any(len(row) != len(columns) for _, columns, rows in tables for row in rows):
            raise ValueError
        return StudyFile(_text(content["title"]), _text(content["text"]), charts, tables)
    except OSError as error:
        raise ConfigError(f"expected a study file, got {file}: {error.strerror}; check the path") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"expected a study file, got something else or a damaged {file}; make it again") from None


def _read(run: StoredRun) -> RunData:
    result = RunFiles(run.path).result if run.path.is_dir() else run.path
    try:
        records = _records(run)
        if run.result is not None:
            matrices = read_json(result)["matrices"]
            _check_figures(records, run.result["primary"])
            return RunData(run, run.result["primary"], _checked(matrices), records, int(run.result["steps"]))
        matrices = {}
        for record in records:
            for name, row in record["accuracy"].items() if record["kind"] == "task" else ():
                matrices.setdefault(name, []).append(row)
        primary = RunConfig.parse(run.config).primary
        _check_figures(records, primary)
        return RunData(run, primary, _checked(matrices), records, _planned_steps(run.path))
    except ConfigError as error:  # not damage: a method of somebody's own that is not known here
        raise ConfigError(f"{error} (in {run.path})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"expected whole records of a run, got damaged ones in {run.path}; restore them"
        ) from None


def _records(run: StoredRun) -> list[dict[str, Any]]:
    file = RunFiles(run.path).records
    if not run.path.is_dir() or not file.exists():
        return []
    lines = plain_file(file).read_text(encoding="utf-8").splitlines(keepends=True)
    if run.result is None and lines and not lines[-1].endswith("\n"):
        lines.pop()  # just being written
    records = [parse_json(line) for line in lines]
    for record in records:
        parts = PARTS.get(record["kind"], {})
        if not isinstance(record["step"], int) or not all(isinstance(record[part], parts[part]) for part in parts):
            raise TypeError
        if not 0 <= record["step"] < MOST_STEPS or not all(_is_plain(record.get(part, {})) for part in NUMBERS):
            raise ValueError
    return records


def _is_plain(value: Any) -> bool:
    """Whether there are only numbers, as far as a float reaches, and None in a value or in lists and mappings."""
    if isinstance(value, dict | list):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, int | float) and abs(value) <= sys.float_info.max)


def _check_figures(records: list[dict[str, Any]], primary: str) -> None:
    """Refuse accuracies without a mean and confusions that are no square of counts."""
    for record in records:
        if record["kind"] in ("task", "evaluation"):
            _check_percent(record["accuracy"].values())
            fmean(record["accuracy"][primary])
        elif record["kind"] == "confusion":
            counts, labels = record["counts"], [label for task in record["classes"] for label in task]
            whole = all(len(row) == len(counts) and all(isinstance(number, int) for number in row) for row in counts)
            if not whole or not all(0 <= label < len(counts) for label in labels):
                raise ValueError


def _checked(matrices: dict[str, Any]) -> dict[str, Matrix]:
    if any(len(row) != place for rows in matrices.values() for place, row in enumerate(rows, start=1)):
        raise ValueError
    _check_percent(row for rows in matrices.values() for row in rows)
    return {str(name): [[float(value) for value in row] for row in rows] for name, rows in matrices.items()}


def _check_percent(rows: Iterable[Sequence[float]]) -> None:
    if not all(0 <= value <= 100 for row in rows for value in row):
        raise ValueError


def _planned_steps(folder: Path) -> int | None:
    try:
        with safe_open(plain_file(RunFiles(folder).stream), "np") as plan:
            return int(plan.get_slice("batch_tasks").get_shape()[0])
    except (OSError, SafetensorError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
