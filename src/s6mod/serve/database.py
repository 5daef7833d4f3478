"""One SQLite file in WAL mode, which threads share. What was committed outlives a kill."""

import sqlite3
from pathlib import Path
from threading import RLock
from typing import Any, Literal

from s6mod.errors import CheckpointError


class Database:
    """With ``synchronous`` FULL a commit returns once it is on disk; with NORMAL a power failure may take the last."""

    def __init__(self, path: Path | None, schema: str, synchronous: Literal["FULL", "NORMAL"]) -> None:
        self._lock = RLock()
        try:
            self._file = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute(f"PRAGMA synchronous={synchronous}")
            self._file.executescript(schema)
        except sqlite3.Error as error:
            raise CheckpointError(f"expected a database in {path}, got: {error}; use another copy") from None

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            self._file.close()

    def _ask(self, sentence: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._file.execute(sentence, values).fetchall()
