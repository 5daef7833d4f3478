"""The mirrors of one run: they follow ``records.jsonl``, and none of their failures reaches the run.

A tracker that cannot take a record back gets it only when a checkpoint holds it, so a restart never contradicts what
was mirrored. After a restart each tracker says from which step on it wants the records. One that failed is tried again
at the end.
"""

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from s6mod.files import parse_json, read_json, write_whole
from s6mod.run_files import RunFiles
from s6mod.trackers.base import Subject, Tracker, tracker_class

STATE = "trackers.json"  # in the run folder: by tracker, its run there and whether that has its end
MIRRORED = ("terms", "figures", "accuracy")  # parts of a record; tables, as the confusion's, stay in the run folder


class Mirrors:
    """All mirrors of one run."""

    def __init__(self, names: Iterable[str], subject: Subject) -> None:
        self.mirrors = [_Mirror(name, subject) for name in names]

    def begin(self, kept: bool) -> None:
        """Open the trackers and bring them up to date; ``kept``: the records so far stand, the run goes on."""
        for mirror in self.mirrors:
            mirror.begin(kept)

    def record(self, record: Mapping[str, Any]) -> None:
        """A record was written."""
        for mirror in self.mirrors:
            mirror.record(record)

    def secure(self) -> None:
        """A checkpoint holds all records: none of them will be cut off."""
        for mirror in self.mirrors:
            mirror.secure()

    def end(self, result: Mapping[str, Any]) -> None:
        """The run has a result."""
        for mirror in self.mirrors:
            mirror.end(result)

    def close(self) -> None:
        """The run is left, for now."""
        for mirror in self.mirrors:
            mirror.close()


class _Mirror:
    """One tracker, as long as it does not fail."""

    def __init__(self, name: str, subject: Subject) -> None:
        self.name, self.subject = name, subject
        self.tracker: Tracker | None = None
        self.next_step = 0
        self.offset = 0  # bytes of the records that were read
        self.warned = False

    def begin(self, kept: bool) -> None:
        if RunFiles(self.subject.folder).result.exists() and self._state().get("ended"):
            return
        with self._guarded():
            self._open(kept)

    def record(self, record: Mapping[str, Any]) -> None:
        if self.tracker is not None and self.tracker.live:
            with self._guarded():
                self.tracker.record(record["step"], numbers(record))

    def secure(self) -> None:
        if self.tracker is not None and not self.tracker.live:
            with self._guarded():
                self._catch_up(self.tracker, self._new_records())

    def end(self, result: Mapping[str, Any]) -> None:
        if self._state().get("ended"):
            return
        with self._guarded():
            if self.tracker is None:
                self._open(kept=True)
            assert self.tracker is not None
            if not self.tracker.live:
                self._catch_up(self.tracker, self._new_records())
            self.tracker.end(result["steps"], dict(_flat(result["metrics"], "result")))
            self._keep(self.tracker, ended=True)
        self.tracker = None

    def close(self) -> None:
        if self.tracker is not None:
            with self._guarded():
                self.tracker.close()
        self.tracker = None

    def _open(self, kept: bool) -> None:
        self.offset = 0
        records = self._new_records() if kept else []
        make = tracker_class(self.name)
        tracker = make(self.subject, self._state().get("run_id"))
        if tracker.next_step > (records[-1]["step"] if records else 0) + 1:
            tracker.close()  # the run has started over, which this one cannot take back
            tracker = make(self.subject, None)
        self.next_step = tracker.next_step
        self._keep(tracker, ended=False)
        self._catch_up(tracker, records)
        self.tracker = tracker

    def _catch_up(self, tracker: Tracker, records: list[dict[str, Any]]) -> None:
        steps: dict[int, dict[str, float]] = {}
        for record in records:
            if record["step"] >= self.next_step:
                steps.setdefault(record["step"], {}).update(numbers(record))
        for step, values in steps.items():
            tracker.record(step, values)
        self.next_step = records[-1]["step"] + 1 if records else self.next_step

    def _new_records(self) -> list[dict[str, Any]]:
        """Those that were not read yet; while a tracker is open, records only grow."""
        path = RunFiles(self.subject.folder).records
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self.offset)
            lines = file.readlines()
            self.offset = file.tell()
        return [parse_json(line) for line in lines]

    def _states(self) -> dict[str, dict[str, Any]]:
        """By tracker, what was kept; a file that holds anything else counts for nothing."""
        try:
            states = read_json(self.subject.folder / STATE)
            return {name: dict(state) for name, state in states.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _state(self) -> dict[str, Any]:
        return self._states().get(self.name, {})

    def _keep(self, tracker: Tracker, ended: bool) -> None:
        states = self._states() | {self.name: {"run_id": tracker.run_id, "ended": ended}}
        write_whole(self.subject.folder / STATE, json.dumps(states, indent=1))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.tracker = None
            if not self.warned:
                reason = str(error).partition("\n")[0]
                warnings.warn(
                    f"{self.name} does not mirror {self.subject.name} ({type(error).__name__}: {reason}); the run goes "
                    "on and tries it again at its end",
                    stacklevel=4,
                )
            self.warned = True


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """What trackers get of a record: its numbers by name, NaN for those that JSON could not hold.

    The values of a list are numbered; accuracies have their mean over the tasks as well.
    """
    found: dict[str, float] = {}
    for part in MIRRORED:
        found |= _flat(record.get(part, {}), part)
    for table, accuracies in record.get("accuracy", {}).items():
        found[f"accuracy/{table}/mean"] = fmean(accuracies)
    if record["kind"] == "step":
        found["task"] = record["task"]
    return found


def _flat(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{name}/{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _flat(part, f"{name}/{number}")
    else:
        yield name, math.nan if value is None else float(value)
