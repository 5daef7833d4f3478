"""The one that learns: a thread that applies the journal's rows in order, publishes copies, and saves.

After a start it does the same as before: it goes on with the row after its checkpoint. So a restart after a kill is no
special case. A rollback loads its snapshot.
"""

import math
import shutil
import sqlite3
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s6mod.errors import CheckpointError, ConfigError, InputError, ResourceError, S6modError, shortly
from s6mod.learner.classes import Name, check_types
from s6mod.locks import hold, let_go
from s6mod.serve.decode import Sent, images_of, labels_of
from s6mod.serve.journal import Journal, Row
from s6mod.serve.service import Service
from s6mod.serve.settings import Limits, RefusedError, Rules
from s6mod.serve.shown import shown
from s6mod.serve.state import ServiceFiles, read

SHARE = 10  # a copy is made while batches wait once learning took so many times as long as the last copy did
MOST_SNAPSHOTS = 8  # that wait to be taken
PAUSE = 0.5  # seconds between two looks at the clock when nothing comes


class Writer(Service):
    """Alone in its folder."""

    role = "writer"

    def __init__(self, folder: Path, device: str | None, limits: Limits, rules: Rules) -> None:
        files = ServiceFiles(folder)
        handle = hold(folder)
        if handle is None:
            raise ConfigError(f"expected no other service in {folder}, got one; use --read-only to follow it")
        self._handle, self._device, self.rules = handle, device, rules
        self.state = read(files.checkpoint, device)
        self.journal = Journal(files.journal)
        if self.journal.last() < self.state.number:
            raise CheckpointError(
                f"expected a journal with row {self.state.number}, which the checkpoint holds, got one that ends at "
                f"{self.journal.last()}: {files.journal} is missing or another's; bring it back"
            )
        if self.journal.last() == 0:
            self.journal.snapshot("start")
        self.saved = self.state.number  # the checkpoint's
        self.step_seconds = 0.1  # of late, for one batch
        self._saved_at = time.monotonic()
        self._dropped = 0  # images of batches below are dropped
        self._copied_at, self._copy_seconds = time.monotonic(), 0.0
        self._accepting = Lock()
        super().__init__(files, self.state, limits, kept=True)

    def stop(self) -> None:
        """Learn what still waits, as far as there is time, save and end."""
        super().stop()
        self.journal.close()
        let_go(self._handle)

    # --- what is asked of it ----------------------------------------------------------------------------------

    def learn(self, sent: Sent) -> dict[str, Any]:
        """Accept a batch: images with labels, or labels for predictions."""
        if sent.labels is None:
            raise InputError("expected labels, got none; send one for each image")
        if sent.predictions is None:
            images = images_of(sent, self.size, self.limits)
        elif not 0 < len(sent.predictions) <= self.limits.images:
            raise InputError(f"expected 1 to {self.limits.images} predictions, got {len(sent.predictions)}; send some")
        else:
            try:
                images = self.predictions.images(sent.predictions)
            except RefusedError:
                first = self.journal.find(sent.id)
                if first is None or first.said != sent.labels:
                    raise
                return first.answer()  # its images are forgotten by now
        return self.accept(images, labels_of(sent.labels, len(images)), sent.id)

    def accept(self, images: NDArray[np.uint8], labels: list[Name], id: str) -> dict[str, Any]:
        """Put a batch into the journal; the answer is given once it is on disk."""
        with self._accepting:
            if self.journal.find(id) is None:
                self._check_alive()
                self._check_room()
                self._check_classes(labels)
            return self._told(self.journal.learn(id, labels, images.tobytes()))

    def take_snapshot(self, id: str) -> dict[str, Any]:
        """Of all that was accepted so far."""
        self._check_alive()
        waiting = sum(row.number > self.state.number for row in self.journal.snapshots())
        if waiting >= MOST_SNAPSHOTS:
            raise RefusedError(
                429, f"expected at most {MOST_SNAPSHOTS} snapshots that wait, got more; wait a little", 5
            )
        return self._told(self.journal.snapshot(id))

    def roll_back(self, id: str, to: int) -> dict[str, Any]:
        """To a snapshot; also where learning has stopped, since it may undo what a restart would stop at again."""
        with self._accepting:
            return self._told(self.journal.rollback(id, to, "asked"))

    def batch(self, id: str) -> dict[str, Any]:
        """What has become of a batch."""
        number, row = self.state.number, self.journal.find(id)  # in this order: a row up to there has its note
        if row is None or row.kind != "learn":
            raise RefusedError(404, f"expected the id of a batch, got {id[:40]!r}; check it")
        learned = row.number <= number
        fate = "unlearned" if row.unlearned else "refused" if row.note else "learned" if learned else "waiting"
        return {**row.answer(), "state": fate, **({"why": row.note} if row.note else {})}

    def snapshots(self) -> dict[str, Any]:
        """Those that one can go back to, and the rollbacks there were."""
        return {
            "snapshots": [
                {**row.answer(), "time": row.time, "there": row.number <= self.state.number, **row.said}
                for row in self.journal.snapshots()
            ],
            "rollbacks": [
                {**row.answer(), "time": row.time, "why": row.said["why"]} for row in self.journal.rollbacks()
            ],
        }

    def status(self) -> dict[str, Any]:
        """How it goes, with what is accepted, learned and saved."""
        journal = {
            "accepted": self.journal.last(),
            "learned": self.state.number,
            "waiting": self.waiting,
            "unlearned": self.journal.unlearned(),
            "checkpoint": self.saved,
            "bytes": self.journal.nbytes(),
        }
        learned = {"batches": self.state.learner.steps, "step_seconds": round(self.step_seconds, 4)}
        return super().status() | learned | {"journal": journal}

    @property
    def waiting(self) -> int:
        """Batches that are accepted and not learned yet."""
        return self.journal.waiting(self.state.number)

    def _told(self, row: Row) -> dict[str, Any]:
        self._wake.set()
        return row.answer()

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise RefusedError(503, f"expected a service that learns, got one that has stopped: {self.failure}", 60)
        if self.stopping:
            raise RefusedError(503, "expected a service that goes on, got one that is about to end; send it again", 5)

    def _check_room(self) -> None:
        waiting = self.waiting
        if waiting >= self.limits.waiting:
            seconds = math.ceil(self.step_seconds * waiting / 2)
            raise RefusedError(
                429,
                f"expected at most {self.limits.waiting} batches that wait, got as many; send it again later",
                min(max(1, seconds), 60),
            )

    def _check_classes(self, labels: list[Name]) -> None:
        """Refuse what the learner could not learn."""
        state = self.state
        fixed, known = state.learner.classes.fixed, set(state.learner.classes.names)
        if fixed is not None:
            for position, label in enumerate(labels):
                if not (isinstance(label, int) and 0 <= label < fixed):
                    raise InputError(
                        f"expected labels in 0..{fixed - 1}, got {label!r} at position {position}; send such numbers, "
                        "in a form or an address as [1]"
                    )
        elif not known.issuperset(labels):
            known |= self.journal.labels_after(state.number)
            check_types(labels, known)
            if len(known.union(labels)) > self.limits.classes:
                raise InputError(
                    f"expected at most {self.limits.classes} classes, got one more; "
                    "check the labels or raise --max-classes"
                )

    # --- what the thread does ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            end = math.inf
            while time.monotonic() < end:
                self._wake.clear()
                ending = self.stopping  # both before the look, so that nothing is missed that comes meanwhile
                try:
                    busy = self._next()
                except sqlite3.OperationalError as error:  # a full disk, another's lock: the row is still the next
                    busy = False
                    self._tell("the journal cannot be used", str(error))
                self._publish_if_due(busy)
                if time.monotonic() - self._saved_at >= self.rules.checkpoint_seconds:
                    self._checkpoint()
                if ending:
                    end = min(end, time.monotonic() + self.rules.drain_seconds) if busy else 0.0
                elif not busy:
                    self._wake.wait(PAUSE)
            self._checkpoint()
        except BaseException as error:
            self.failure = shortly(error)
            print(f"learning has stopped: {self.failure}", file=sys.stderr)
            if not isinstance(error, S6modError):
                traceback.print_exc()

    def _next(self) -> bool:
        row = self.journal.after(self.state.number)
        if row is None:
            return False
        if row.kind == "learn":
            self._learn(row)
        elif row.kind == "snapshot":
            self._take_snapshot(row)
        else:
            self._roll_back(row)
        return True

    def _learn(self, row: Row) -> None:
        begin = time.monotonic()
        learner, account = self.state.learner, self.state.account
        assert row.images is not None
        images = np.frombuffer(row.images, np.uint8).reshape(len(row.said), 3, *self.size)
        published = self.shown.published
        try:
            hits = None if published is None else right(published.predict(images), row.said)
            learner.learn(torch.from_numpy(images.copy()), row.said)
        except ResourceError:
            raise
        except S6modError as error:  # nothing has changed; a restart will find the same
            self.journal.note(row.number, str(error))
        else:
            account.count(row.number, row.said, learner.classes, hits)
            if self.rules.snapshot_every and learner.steps % self.rules.snapshot_every == 0:
                with suppress(RefusedError, sqlite3.OperationalError):  # a client has taken the id; the disk is full
                    self.journal.snapshot(f"by itself at row {row.number}")
        self.state = self.state.at(row.number)
        self.step_seconds += 0.1 * (time.monotonic() - begin - self.step_seconds)
        self._mind_the_fall()

    def _mind_the_fall(self) -> None:
        """Go back to the best snapshot if accuracy has fallen too far below its own."""
        now = self.state.account.accuracy()
        if self.rules.fall is None or now is None:
            return
        # A replay knows later ones.
        rows = [row for row in self.journal.snapshots() if row.number <= self.state.number]
        figures = [(row.said["accuracy"], row.number) for row in rows if row.said.get("accuracy") is not None]
        best, number = max(figures, default=(0.0, 0))
        if best - now > self.rules.fall:
            why = f"accuracy fell from {best:.1f} to {now:.1f}"
            with self._accepting, suppress(RefusedError):  # as above
                self.journal.rollback(f"fall at row {self.state.number}", number, why)

    def _take_snapshot(self, row: Row) -> None:
        state = self.state.at(row.number)
        try:
            state.snapshot().write(self.files.snapshot(row.number))
        except CheckpointError as error:  # a full disk
            with self._accepting:
                if row.number in self.journal.rollbacks_after(row.number):
                    raise
                self.journal.note(row.number, str(error))
        else:
            learner, accuracy = state.learner, state.account.accuracy()
            figures = {"batches": learner.steps, "classes": len(learner.classes_)}
            self.journal.describe(row.number, figures | {"accuracy": None if accuracy is None else round(accuracy, 2)})
        self.state = state

    def _roll_back(self, row: Row) -> None:
        self.state = read(self.files.snapshot(row.said["to"]), self._device).at(row.number)
        self._publish()
        self._saved_at = -math.inf  # what was undone need not be undone again

    def _publish_if_due(self, busy: bool) -> None:
        begin = time.monotonic()
        pause = self._copy_seconds * (SHARE if busy else 1)
        if self.shown.batches != self.state.learner.steps and begin - self._copied_at >= pause:
            self._publish()

    def _publish(self) -> None:
        begin = time.monotonic()
        self.shown = shown(self.state)
        self._copied_at = time.monotonic()
        self._copy_seconds = self._copied_at - begin

    def _checkpoint(self) -> None:
        """Save the state if it is new; then what that makes needless can go."""
        if self.saved == self.state.number:
            return
        try:
            self.state.snapshot().write(self.files.checkpoint)
            before, self.saved, self.trouble = self.saved, self.state.number, None
            self._tidy(before)
        except (CheckpointError, sqlite3.Error) as error:  # the journal has it all; the next one may succeed
            self._tell("no checkpoint", str(error))
        self._saved_at = time.monotonic()

    def _tidy(self, before: int) -> None:
        """Keep the newest snapshots, those that rollbacks need, and images of batches after the oldest of them.

        ``before``: the checkpoint that the present one has replaced; a disk that loses power may bring it back.
        """
        with self._accepting:  # or a rollback could be accepted to one that goes
            rows = [row for row in self.journal.snapshots() if row.number <= self.state.number]
            needed = self.journal.rollbacks_after(before)
            for row in rows[: -self.rules.snapshots]:
                if row.number not in needed:
                    self.journal.note(row.number, "removed")
            kept = {row.number for row in self.journal.snapshots()}
        for folder in self.files.snapshots.glob("*"):
            if folder.name.isdecimal() and int(folder.name) not in kept | needed:
                with suppress(OSError):
                    shutil.rmtree(folder)
        oldest = min(kept | needed | {before})
        if oldest > self._dropped:
            self.journal.drop_images(self._dropped, oldest)
            self._dropped = oldest


def right(predicted: Any, labels: Sequence[Name]) -> Tensor:
    """Which predictions are the label, (N,) bool on the host."""
    return torch.tensor([found == label for found, label in zip(predicted.tolist(), labels, strict=True)])
