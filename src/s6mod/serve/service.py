"""What answers requests, whoever speaks to it and how: it predicts, and tells how it goes.

A ``Reader`` does no more; it follows the checkpoints that a writer leaves in a folder. A ``Writer`` learns.
"""

import os
import sys
import time
from dataclasses import replace
from math import prod
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from s6mod._version import __version__
from s6mod.data.images import RESIZING
from s6mod.engine.checkpoint import STATE
from s6mod.errors import InputError, shortly
from s6mod.serve.decode import Sent, images_of
from s6mod.serve.predictions import Predictions
from s6mod.serve.settings import Limits, RefusedError
from s6mod.serve.shown import picture, shown
from s6mod.serve.state import ServiceFiles, State, read

MOST_TOP = 100  # labels of a prediction
LATEST = 24  # predictions that are shown
KEPT, KEPT_BYTES = 10_000, 128 * 2**20  # predictions, and bytes of their images, for a label that may come
PAUSE = 1.0  # seconds between two looks of a reader


class Service:
    """What a ``Writer`` and a ``Reader`` have in common. Any thread may ask it.

    A thread of its own keeps ``shown`` fresh. It is replaced whole, so others read it without a lock.
    """

    role: str

    def __init__(self, files: ServiceFiles, state: State, limits: Limits, kept: bool) -> None:
        """With ``kept`` predictions outlive the process."""
        self.files, self.limits, self.size, self.shown = files, limits, state.size, shown(state)
        most = max(1, min(KEPT, KEPT_BYTES // (3 * prod(self.size))))
        self.predictions = Predictions(files.predictions if kept else None, most, self.size)
        self.begun = time.time()
        self.failure: str | None = None  # why it learns no more
        self.trouble: str | None = None  # why the latest checkpoint was not written or read, or the journal not
        self.stopping = False
        self._wake = Event()
        self._thread = Thread(target=self._run, name=self.role)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End what was begun."""
        self.stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.predictions.close()

    def _run(self) -> None:
        raise NotImplementedError

    def _tell(self, what: str, trouble: str) -> None:
        """Say once what does not go, and why; it is tried again."""
        if trouble != self.trouble:
            print(f"{what}: {trouble}", file=sys.stderr)
        self.trouble = trouble

    def predict(self, sent: Sent, top: int) -> dict[str, Any]:
        """Labels and probabilities of images, best first."""
        if sent.labels is not None or sent.predictions is not None:
            raise InputError("expected images alone, got labels or predictions; send them to POST /learn")
        if not 1 <= top <= MOST_TOP:
            raise InputError(f"expected top in 1..{MOST_TOP}, got {top}; choose another")
        images = images_of(sent, self.size, self.limits)
        published = self.shown.published
        if published is None:
            raise RefusedError(409, "expected a learner that has learned, got one that has seen nothing; learn first")
        shares = np.asarray(published.predict_proba(images))  # (N, classes)
        if not np.isfinite(shares).all():
            raise RefusedError(503, "expected finite probabilities, got others: the learner has diverged; roll it back")
        names = published.classes.columns
        best = (-shares).argsort(1, kind="stable")[:, :top]
        answers = [
            [{"label": names[c], "probability": round(float(share[c]), 6)} for c in order]
            for order, share in zip(best, shares, strict=True)
        ]
        ids = self.predictions.add(images, [labels[0] for labels in answers])
        told = [{"id": id, "labels": labels} for id, labels in zip(ids, answers, strict=True)]
        return {"batches": published.steps, "predictions": told}

    def status(self) -> dict[str, Any]:
        """How it goes."""
        now = self.shown
        return {
            "version": __version__,
            "role": self.role,
            "batches": now.batches,
            **now.status,
            "image_size": list(self.size),
            "resizing": RESIZING,
            "published": {"number": now.number, "seconds_ago": round(time.time() - now.time, 1)},
            "predictions": self.predictions.total,
            "seconds": round(time.time() - self.begun, 1),
            "failure": self.failure,
            "trouble": self.trouble,
        }

    def live(self) -> dict[str, Any]:
        """What the page draws whenever it changes."""
        return {"status": self.status(), "curve": self.shown.curve, "routing": self.shown.routing}

    def memory(self) -> dict[str, Any]:
        """Some images that the memory holds, by class."""
        return {"images": [{"label": label, "image": picture(image)} for label, image in self.shown.samples]}

    def latest(self) -> dict[str, Any]:
        """Predictions, the newest first."""
        latest = self.predictions.latest(LATEST)
        return {"predictions": [each | {"image": picture(each["image"])} for each in latest]}


class Reader(Service):
    """Answers by the latest checkpoint. The folder may be a copy that another program keeps fresh."""

    role = "reader"

    def __init__(self, folder: Path, device: str | None, limits: Limits) -> None:
        files = ServiceFiles(folder)
        self._device, self._seen = device, _mark(files.checkpoint)
        super().__init__(files, read(files.checkpoint, device), limits, kept=False)
        self._date()

    def _run(self) -> None:
        while not self._wake.wait(PAUSE):
            mark = _mark(self.files.checkpoint)
            if mark is None or mark == self._seen:
                continue
            try:
                self.shown = shown(read(self.files.checkpoint, self._device))
            except Exception as error:  # half of a copy, little memory: the next look may find it whole
                self._tell("no newer checkpoint", shortly(error))
            else:
                self._seen, self.trouble = mark, None
                self._date()

    def _date(self) -> None:
        """What is shown is as old as the checkpoint: a writer may have ended long ago."""
        if self._seen is not None:
            self.shown = replace(self.shown, time=self._seen[1] / 1e9)


def _mark(checkpoint: Path) -> tuple[int, int] | None:
    """What changes when a checkpoint is replaced."""
    try:
        found = os.stat(checkpoint / STATE)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
