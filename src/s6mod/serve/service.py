"""What a service does for a request, whoever speaks to it and how: predict, learn, tell."""

import time
from math import prod
from typing import Any

import numpy as np

from s6mod._version import __version__
from s6mod.data.images import RESIZING
from s6mod.errors import InputError
from s6mod.serve import decode
from s6mod.serve.decode import Decoded, Sent
from s6mod.serve.predictions import Predictions
from s6mod.serve.reader import Reader
from s6mod.serve.settings import Limits, RefusedError
from s6mod.serve.shown import names_of, picture
from s6mod.serve.writer import Writer

MOST_TOP = 100  # labels of a prediction
LATEST = 24  # predictions that are shown
KEPT_BYTES = 128 * 2**20  # of images of predictions


class Service:
    """A writer or a reader, and the latest predictions. Any thread may call it."""

    def __init__(self, host: Writer | Reader, limits: Limits) -> None:
        self.host, self.limits, self.size = host, limits, host.size  # height and width of all images
        most = max(1, min(limits.kept, KEPT_BYTES // (3 * prod(self.size))))
        path = host.files.predictions if isinstance(host, Writer) else None  # a reader only reads
        self.predictions = Predictions(path, most, self.size)
        self.begun = time.time()

    def start(self) -> None:
        """Begin."""
        self.host.start()

    def stop(self) -> None:
        """Save and end."""
        self.host.stop()
        self.predictions.close()

    @property
    def writer(self) -> Writer:
        """Who learns."""
        if isinstance(self.host, Reader):
            raise RefusedError(403, "expected the service that learns, got one that follows it; ask the writer")
        return self.host

    def predict(self, sent: Sent, top: int) -> dict[str, Any]:
        """Labels and probabilities of images, best first."""
        if sent.labels is not None or sent.predictions is not None:
            raise InputError("expected images alone, got labels or predictions; send them to POST /learn")
        if not 1 <= top <= MOST_TOP:
            raise InputError(f"expected top in 1..{MOST_TOP}, got {top}; choose another")
        given = decode.batch(sent, self.size, self.limits)
        published = self.host.shown.published
        if published is None:
            raise RefusedError(409, "expected a learner that has learned, got one that has seen nothing; learn first")
        shares = np.asarray(published.predict_proba(given.images))  # (N, classes)
        if not np.isfinite(shares).all():
            raise RefusedError(503, "expected finite probabilities, got others: the learner has diverged; roll it back")
        names = names_of(published.classes)
        best = (-shares).argsort(1, kind="stable")[:, :top]
        answers = [
            [{"label": names[c], "probability": round(float(share[c]), 6)} for c in order]
            for order, share in zip(best, shares, strict=True)
        ]
        ids = self.predictions.add(given.images, [labels[0] for labels in answers])
        told = [{"id": id, "labels": labels} for id, labels in zip(ids, answers, strict=True)]
        return {"batches": published.steps, "predictions": told}

    def learn(self, sent: Sent) -> dict[str, Any]:
        """Accept a batch: images with labels, or labels for predictions."""
        writer = self.writer
        if sent.labels is None:
            raise InputError("expected labels, got none; send one for each image")
        if sent.predictions is None:
            return writer.accept(decode.batch(sent, self.size, self.limits))
        if not 0 < len(sent.predictions) <= self.limits.images:
            raise InputError(f"expected 1 to {self.limits.images} predictions, got {len(sent.predictions)}; send some")
        labels, id = decode.labels_of(sent.labels, len(sent.predictions)), decode.id_of(sent.id)
        try:
            images = self.predictions.images(sent.predictions)
        except RefusedError:
            first = writer.journal.find(id)
            if first is None or first.said != labels:
                raise
            return first.answer()  # its images are forgotten by now
        return writer.accept(Decoded(images, labels, id))

    def batch(self, id: str) -> dict[str, Any]:
        """What has become of a batch."""
        row = self.writer.journal.find(id)
        if row is None or row.kind != "learn":
            raise RefusedError(404, f"expected the id of a batch, got {id[:40]!r}; check it")
        learned = row.number <= self.writer.state.number
        fate = "unlearned" if row.unlearned else "refused" if row.note else "learned" if learned else "waiting"
        return {**row.answer(), "state": fate, **({"why": row.note} if row.note else {})}

    def status(self) -> dict[str, Any]:
        """How it goes."""
        host, now = self.host, self.host.shown
        told: dict[str, Any] = {
            "version": __version__,
            "role": "writer" if isinstance(host, Writer) else "reader",
            "learner": now.learner,
            "batches": now.batches,
            "classes": len(now.classes),
            "accuracy": now.accuracy,
            "memory": now.memory,
            "image_size": list(self.size),
            "resizing": RESIZING,
            "published": {"number": now.number, "seconds_ago": round(time.time() - now.time, 1)},
            "predictions": self.predictions.total,
            "seconds": round(time.time() - self.begun, 1),
            "failure": host.failure,
            "trouble": host.trouble,
        }
        if isinstance(host, Writer):
            told |= {
                "batches": host.state.learner.steps,
                "journal": {
                    "accepted": host.journal.last(),
                    "learned": host.state.number,
                    "waiting": host.waiting,
                    "unlearned": host.journal.unlearned(),
                    "checkpoint": host.saved,
                    "bytes": host.journal.nbytes(),
                },
                "step_seconds": round(host.step_seconds, 4),
            }
        return told

    def live(self) -> dict[str, Any]:
        """What the page draws whenever it changes."""
        now = self.host.shown
        return {"status": self.status(), "curve": now.curve, "routing": now.routing}

    def snapshots(self) -> dict[str, Any]:
        """Those that one can go back to, and the rollbacks there were."""
        journal, learned = self.writer.journal, self.writer.state.number
        return {
            "snapshots": [
                {**row.answer(), "time": row.time, "there": row.number <= learned, **row.said}
                for row in journal.snapshots()
            ],
            "rollbacks": [{**row.answer(), "time": row.time, "why": row.said["why"]} for row in journal.rollbacks()],
        }

    def memory(self) -> list[dict[str, Any]]:
        """Some images that the memory holds, by class."""
        return [{"label": label, "image": picture(image)} for label, image in self.host.shown.samples]

    def latest(self) -> list[dict[str, Any]]:
        """Predictions, the newest first."""
        return [each | {"image": picture(each["image"])} for each in self.predictions.latest(LATEST)]

    def gauges(self) -> dict[str, tuple[str, float | int | None]]:
        """Figures for Prometheus."""
        told = self.status()
        found: dict[str, tuple[str, float | int | None]] = {
            "up_seconds": ("Seconds since the start.", told["seconds"]),
            "predictions_total": ("Images predicted.", told["predictions"]),
            "batches": ("Batches learned and not unlearned.", told["batches"]),
            "classes": ("Classes known.", told["classes"]),
            "memory_images": ("Images in the replay memory.", told["memory"]["held"]),
            "accuracy_windowed": ("Percent of the latest images predicted right before learning.",
                                  told["accuracy"]["windowed"]),
            "published_age_seconds": ("Seconds since a copy that predicts was made.",
                                      told["published"]["seconds_ago"]),
            "failed": ("1 if it learns no more.", int(told["failure"] is not None)),
            "checkpoint_failed": ("1 if the latest checkpoint was not written or read.",
                                  int(told["trouble"] is not None)),
        }  # fmt: skip
        if "journal" in told:
            journal = told["journal"]
            found |= {
                "accepted_rows_total": ("Rows accepted into the journal.", journal["accepted"]),
                "waiting_batches": ("Batches accepted and not learned yet.", journal["waiting"]),
                "unlearned_batches": ("Batches that rollbacks have undone.", journal["unlearned"]),
                "rows_since_checkpoint": ("Rows that a restart would apply again.",
                                          journal["learned"] - journal["checkpoint"]),
                "journal_bytes": ("Bytes of the journal.", journal["bytes"]),
                "step_seconds": ("Seconds for one batch, of late.", told["step_seconds"]),
            }  # fmt: skip
        return found
