"""The latest predictions, with their images: a label may come for one later, also after a kill.

A commit waits for no disk, so a prediction does not either. A power failure may take the last of them.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s6mod.serve.database import Database
from s6mod.serve.settings import RefusedError

SCHEMA = """
CREATE TABLE IF NOT EXISTS predictions (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  label TEXT NOT NULL,     -- JSON: a name or a number
  probability REAL NOT NULL,
  time REAL NOT NULL,
  image BLOB NOT NULL      -- uint8 (3, H, W)
) STRICT
"""


class Predictions(Database):
    """At most ``most``, the oldest go first; without a ``path`` they end with the process."""

    def __init__(self, path: Path | None, most: int, size: tuple[int, int]) -> None:
        super().__init__(path, SCHEMA, "NORMAL")
        self._most, self._shape, self.total = most, (3, *size), 0

    def add(self, images: NDArray[np.uint8], best: Sequence[Mapping[str, Any]]) -> list[str]:
        """Keep the answers to some images, each with its best label and its probability; their ids."""
        request, now = secrets.token_hex(8), time.time()
        ids = [f"{request}-{number}" for number in range(len(images))]
        rows = [
            (id, json.dumps(answer["label"]), answer["probability"], now, image.tobytes())
            for id, image, answer in zip(ids, images, best, strict=True)
        ]
        with self._lock:
            self.total += len(ids)
            with suppress(sqlite3.Error), self._file:  # a full disk: that answer has no label later
                self._ask("BEGIN IMMEDIATE")
                self._file.executemany(
                    "INSERT INTO predictions (id, label, probability, time, image) VALUES (?, ?, ?, ?, ?)", rows
                )
                self._ask(
                    "DELETE FROM predictions WHERE number <= (SELECT max(number) FROM predictions) - ?", self._most
                )
        return ids

    def images(self, ids: Sequence[str]) -> NDArray[np.uint8]:
        """The images of some predictions, (N, 3, H, W)."""
        found = []
        for id in ids:
            row = self._ask("SELECT image FROM predictions WHERE id = ?", id)
            if not row:
                raise RefusedError(
                    404,
                    f"expected one of the latest {self._most:,} predictions made here, got {id[:40]!r}; "
                    "send the image with its label",
                )
            found.append(self._image(*row[0]))
        return np.stack(found)

    def latest(self, number: int) -> list[dict[str, Any]]:
        """The newest first: id, label, probability, time and image (3, H, W)."""
        rows = self._ask(
            "SELECT id, label, probability, time, image FROM predictions ORDER BY number DESC LIMIT ?", number
        )
        return [
            {"id": id, "label": json.loads(label), "probability": share, "time": moment, "image": self._image(image)}
            for id, label, share, moment, image in rows
        ]

    def _image(self, content: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(content, np.uint8).reshape(self._shape)
