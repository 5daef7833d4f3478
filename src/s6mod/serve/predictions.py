"""The latest predictions, with their images: a label may come for one later.

They are held in memory, so that a prediction waits for no disk, and saved when the service ends in peace. After a kill
they are gone; then a client sends the image with its label.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from s6mod.files import write_whole
from s6mod.learner.classes import Name
from s6mod.serve.settings import RefusedError


@dataclass(frozen=True)
class Prediction:
    """An image (3, H, W) and what was answered."""

    image: NDArray[np.uint8]
    label: Name
    probability: float
    time: float


class Predictions:
    """At most ``most``, the oldest go first; threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._kept: OrderedDict[str, Prediction] = OrderedDict()
        self.total = 0

    def add(self, images: NDArray[np.uint8], best: Sequence[tuple[Name, float]]) -> list[str]:
        """Keep the answers to some images, each with its best label; their ids."""
        request, now = secrets.token_hex(8), time.time()
        ids = [f"{request}-{number}" for number in range(len(images))]
        with self._lock:
            for id, image, (label, probability) in zip(ids, images, best, strict=True):
                self._kept[id] = Prediction(image, label, probability, now)
            self.total += len(ids)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return ids

    def images(self, ids: Sequence[str]) -> NDArray[np.uint8]:
        """The images of some predictions, (N, 3, H, W)."""
        with self._lock:
            found = [self._kept.get(id) for id in ids]
        for id, prediction in zip(ids, found, strict=True):
            if prediction is None:
                raise RefusedError(
                    404,
                    f"expected one of the latest {self._most:,} predictions made here, got {id[:40]!r}; "
                    "send the image with its label",
                )
        return np.stack([prediction.image for prediction in found if prediction is not None])

    def latest(self, number: int) -> list[tuple[str, Prediction]]:
        """The newest first."""
        with self._lock:
            return list(islice(reversed(self._kept.items()), number))

    def save(self, path: Path) -> None:
        """For the next start."""
        kept = list(self._kept.items())
        about = [[id, each.label, each.probability, each.time] for id, each in kept]
        parts = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        if kept:
            parts["images"] = np.stack([each.image for _, each in kept])
        write_whole(path, save(parts))

    def load(self, path: Path) -> None:
        """What was saved, if it is there and whole; it is worth no failure."""
        try:
            parts = load(path.read_bytes())
            about: list[Any] = json.loads(parts["about"].tobytes())
            kept = {
                str(id): Prediction(image, label, float(share), float(moment))
                for (id, label, share, moment), image in zip(about, parts.get("images", ()), strict=True)
            }
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return
        self._kept.update(kept)
