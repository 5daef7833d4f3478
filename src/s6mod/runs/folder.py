"""The folder of a run as the run itself uses it: kept from other processes, with records that only grow.

What is replaced whole (configuration, checkpoint, result) is written by ``run``.
"""

import json
import math
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from s6mod.errors import CheckpointError
from s6mod.locks import hold, let_go

PARTS = {"cell", "seed", "primary", "metrics", "matrices", "steps", "ms_per_step"}  # of a result, as others read it


class RunFolder:
    """One folder, for one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = path / "records.jsonl"
        self._let_go: Callable[[], object] = lambda: None

    @property
    def begun(self) -> bool:
        """Whether there is a run in it, or what is left of one."""
        return any((self.path / name).exists() for name in ("config.json", "result.json"))

    @property
    def begun_as(self) -> str | None:
        """The hash that the run was begun with, if there is one; a later version may have more fields to hash."""
        file = self.path / "config.json"
        return str(json.loads(file.read_text(encoding="utf-8"))["hash"]) if file.exists() else None

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if the run has come to its end."""
        file = self.path / "result.json"
        if not file.exists():
            return None
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            result = None
        if not isinstance(result, dict) or PARTS - result.keys():
            raise CheckpointError(f"expected a run's result, got a damaged {file}; remove it and resume")
        return result

    def hold(self) -> bool:
        """Keep it until it is released: two processes must not write one run. False: another has it."""
        handle = hold(self.path)
        if handle is not None:
            self._let_go = weakref.finalize(self, let_go, handle)  # at most once, and if nobody else does
        return handle is not None

    def release(self) -> None:
        """Let others have it."""
        self._let_go()

    # --- records ----------------------------------------------------------------------------------------------

    @property
    def has_records(self) -> bool:
        """Whether there is any."""
        return self.records.exists() and self.records.stat().st_size > 0

    def clear(self) -> None:
        """Start without records."""
        self.records.write_bytes(b"")

    def append(self, record: dict[str, Any]) -> dict[str, Any]:
        """Add a record; it is returned as it was written."""
        written: dict[str, Any] = _finite(record)
        with self.records.open("a", encoding="utf-8") as file:
            file.write(json.dumps(written, allow_nan=False) + "\n")
        return written

    def secure(self) -> int:
        """Bytes of records once they are on disk, so that a checkpoint never counts on more than survives."""
        with self.records.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())
            return file.tell()

    def cut(self, size: int) -> None:
        """Go back to the records that a checkpoint counted on."""
        if not self.records.exists() or self.records.stat().st_size < size:
            raise CheckpointError(f"expected at least {size} bytes in {self.records}, got fewer; restore the file")
        os.truncate(self.records, size)


def _finite(value: Any) -> Any:
    """The same plain values with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
