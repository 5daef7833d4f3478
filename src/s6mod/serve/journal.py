"""What was accepted, in order: one SQLite file in WAL mode, in which a row is on disk before anybody is told of it.

A row is a batch to learn, a snapshot to take or a rollback. Whoever applies all rows in order of their numbers gets the
state of the learner, so a restart needs a checkpoint with its number and the rows after it. A rollback marks the rows
that it undoes; they stay.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from s6mod.learner.classes import Name
from s6mod.serve.database import Database
from s6mod.serve.settings import RefusedError

Kind = Literal["learn", "snapshot", "rollback"]
SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  time REAL NOT NULL,
  said TEXT NOT NULL,      -- JSON: labels of a batch, figures of a snapshot, where a rollback goes and why
  images BLOB,             -- uint8 (N, 3, H, W) of a batch; NULL once no restart or rollback can need them
  digest TEXT NOT NULL,    -- of what was sent, to know it when it comes again
  unlearned INTEGER,       -- the number of the rollback that undid it
  note TEXT                -- why it has no effect: a batch that was refused, a snapshot that was removed
) STRICT;
CREATE INDEX IF NOT EXISTS kinds ON journal (kind, unlearned)
"""
ROWS = "SELECT number, id, kind, time, said, images, digest, unlearned, note FROM journal WHERE "
EFFECTIVE = "unlearned IS NULL AND note IS NULL"


@dataclass(frozen=True)
class Row:
    """One row."""

    number: int
    id: str
    kind: Kind
    time: float
    said: Any
    images: bytes | None
    digest: str
    unlearned: int | None
    note: str | None

    def answer(self) -> dict[str, Any]:
        """What whoever sent it is told, however often it is sent."""
        told: dict[str, Any] = {"id": self.id, "number": self.number}
        if self.kind == "learn":
            told["images"] = len(self.said)
        return told | ({"snapshot": self.said["to"]} if self.kind == "rollback" else {})


class Journal(Database):
    """The rows of one service; threads may share it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA, "FULL")
        self.path = path

    # --- what comes in ----------------------------------------------------------------------------------------

    def learn(self, id: str, labels: Sequence[Name], images: bytes) -> Row:
        """A batch, on disk when this returns; sent again under its ``id``, it is the row of the first time."""
        return self._append("learn", id, list(labels), images)

    def snapshot(self, id: str) -> Row:
        """A snapshot of all that was accepted before it."""
        return self._append("snapshot", id, {}, None)

    def rollback(self, id: str, to: int, why: str) -> Row:
        """Back to the snapshot of that number; all rows after it are marked as unlearned."""
        return self._append("rollback", id, {"to": to, "why": why}, None)

    def _append(self, kind: Kind, id: str, said: Any, images: bytes | None) -> Row:
        text = json.dumps(said)
        sent = "" if kind == "snapshot" else str(said["to"]) if kind == "rollback" else text
        digest = sha256(b"\0".join((kind.encode(), sent.encode(), images or b""))).hexdigest()
        with self._lock, self._file:
            self._file.execute("BEGIN IMMEDIATE")
            first = self.find(id)
            if first is not None:
                if first.digest != digest:
                    raise RefusedError(
                        409, f"expected what was sent under id {id!r} before, got something else; choose a new id"
                    )
                return first
            if kind == "rollback" and said["to"] not in {row.number for row in self.snapshots()}:
                raise RefusedError(404, f"expected a snapshot that is there, got {said['to']}; see GET /snapshots")
            self._ask(
                "INSERT INTO journal (id, kind, time, said, images, digest) VALUES (?, ?, ?, ?, ?, ?)",
                id, kind, time.time(), text, images, digest,
            )  # fmt: skip
            row = self.find(id)
            assert row is not None
            if kind == "rollback":
                self._ask(  # also earlier rollbacks: their snapshots may be among what is undone
                    "UPDATE journal SET unlearned = ? WHERE number > ? AND number < ? AND unlearned IS NULL",
                    row.number, said["to"], row.number,
                )  # fmt: skip
            return row

    # --- what the writer asks ---------------------------------------------------------------------------------

    def after(self, number: int) -> Row | None:
        """The next row that has an effect."""
        return next(iter(self._rows(f"number > ? AND {EFFECTIVE} ORDER BY number LIMIT 1", number)), None)

    def waiting(self, number: int) -> int:
        """Batches after that number that are to be learned."""
        return self._count(f"kind = 'learn' AND number > ? AND {EFFECTIVE}", number)

    def labels_after(self, number: int) -> set[Name]:
        """All labels in them."""
        where = f"kind = 'learn' AND number > ? AND {EFFECTIVE}"
        found = self._ask(f"SELECT said FROM journal WHERE {where}", number)
        return {label for (text,) in found for label in json.loads(text)}

    def rollbacks_after(self, number: int) -> set[int]:
        """Where they go to: these snapshots are still needed."""
        return {row.said["to"] for row in self._rows("kind = 'rollback' AND number > ? AND unlearned IS NULL", number)}

    def note(self, number: int, sentence: str) -> None:
        """Say why a row has no effect."""
        self._ask("UPDATE journal SET note = ? WHERE number = ?", sentence, number)

    def describe(self, number: int, figures: dict[str, Any]) -> None:
        """Say what a snapshot holds."""
        self._ask("UPDATE journal SET said = ? WHERE number = ?", json.dumps(figures), number)

    def drop_images(self, start: int, stop: int) -> None:
        """Of batches in this range that were learned, or refused; their ids are still known."""
        self._ask(
            "UPDATE journal SET images = NULL WHERE number >= ? AND number < ? AND unlearned IS NULL", start, stop
        )

    # --- what is told -----------------------------------------------------------------------------------------

    def find(self, id: str) -> Row | None:
        """The row of that id."""
        return next(iter(self._rows("id = ?", id)), None)

    def snapshots(self) -> list[Row]:
        """Those that are there or will be when the writer comes to them, oldest first."""
        return self._rows(f"kind = 'snapshot' AND {EFFECTIVE} ORDER BY number")

    def rollbacks(self) -> list[Row]:
        """The latest 50, oldest first."""
        return self._rows("kind = 'rollback' ORDER BY number DESC LIMIT 50")[::-1]

    def last(self) -> int:
        """The number of the latest row; 0: there is none."""
        return int(self._ask("SELECT coalesce(max(number), 0) FROM journal")[0][0])

    def unlearned(self) -> int:
        """Batches that rollbacks have undone."""
        return self._count("kind = 'learn' AND unlearned IS NOT NULL")

    def nbytes(self) -> int:
        """Bytes of the file with what is not yet moved into it."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _count(self, where: str, *values: Any) -> int:
        return int(self._ask(f"SELECT count(*) FROM journal WHERE {where}", *values)[0][0])

    def _rows(self, where: str, *values: Any) -> list[Row]:
        return [
            Row(number, id, kind, moment, json.loads(said), *rest)
            for number, id, kind, moment, said, *rest in self._ask(ROWS + where, *values)
        ]
