"""The folder of a run as its run uses it: kept from other processes, with records that only grow.

What is replaced whole (configuration, checkpoint, result) is written by ``run``.
"""

import json
import math
import os
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from s6mod.errors import CheckpointError
from s6mod.files import plain_file, read_json, write_whole
from s6mod.locks import hold, let_go
from s6mod.run_files import RunFiles

PARTS = {"cell", "seed", "primary", "metrics", "matrices", "steps", "ms_per_step"}  # of a result, as others read it


class RunFolder(RunFiles):
    """One folder, for one run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._let_go: Callable[[], object] = lambda: None

    @property
    def begun_as(self) -> str | None:
        """The hash that the run was begun with, if there is one; a later version may have more fields to hash."""
        return str(read_json(self.config)["hash"]) if self.config.exists() else None

    def read_result(self) -> dict[str, Any] | None:
        """The result, if the run has come to its end."""
        if not self.result.exists():
            return None
        try:
            result = read_json(self.result)
        except ValueError:
            result = None
        if not isinstance(result, dict) or PARTS - result.keys():
            raise CheckpointError(f"expected a run's result, got a damaged {self.result}; remove it and resume")
        return result

    def note_failure(self, error: Exception) -> bool:
        """Leave the traceback, so that the run is listed as failed; False if the disk does not take it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.failure, "".join(traceback.format_exception(error)))
        except OSError:
            return False
        return True

    def hold(self) -> bool:
        """Keep it until it is released: two processes must not write one run. False: another has it."""
        handle = hold(self.folder)
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
        plain_file(self.records).write_bytes(b"")

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
