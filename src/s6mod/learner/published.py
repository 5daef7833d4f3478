"""What a learner predicts by, as it was at one moment: threads share it while the learner goes on.

It is a copy that nothing changes, so whoever asks it takes no turn and waits for no step.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import memory_for
from s6mod.learner.answers import Answers

if TYPE_CHECKING:
    from s6mod.learner.learner import Learner


class Published(Answers):
    """Answers as its learner gave them after ``steps`` batches. Score tables are on the host.

    ``scores`` leaves out those that need the memory, unless the one that predicts does.
    """

    def __init__(self, learner: "Learner") -> None:
        """What ``learner`` predicts by at this moment."""
        predictor = learner._present(learner.config.weights, learner.config.statistics)
        with memory_for("a copy to publish", "lower the width of the network"):
            self._predictor = predictor.frozen(learner.primary)
        device = learner.engine.device
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # it is whole before another thread reads it
        self._primary, self._temperature = learner.primary, learner.temperature
        self.classes, self.image_shape, self.steps = learner.classes, learner.image_shape, learner.steps
        self.classes_ = learner.classes_
        self.made_at = time.monotonic()

    def is_old(self, learner: "Learner") -> bool:
        """Whether ``learner``, which has just learned a batch, is to publish the next."""
        every, seconds = learner.config.publish_every, learner.config.publish_seconds
        late = seconds is not None and time.monotonic() - self.made_at >= seconds
        return late or (every is not None and learner.steps % every == 0)

    @property
    def temperature(self) -> float:
        """By what scores are divided for probabilities."""
        return self._temperature

    @property
    def primary(self) -> str:
        """The name of the score table that predicts."""
        return self._primary

    @property
    def nbytes(self) -> int:
        """Bytes that the copy takes."""
        return self._predictor.nbytes

    @ordinary_tensors()
    def _tables(self, images: Tensor, only: str | None = None) -> dict[str, Tensor]:
        self._check_shape(images)
        device = self._predictor.engine.device
        with _autocast_cache_kept(), _beside_steps(device, images):
            tables = self._named(self._predictor(images.to(device), only))
            return {name: table.cpu() for name, table in tables.items()}


@contextmanager
def _autocast_cache_kept() -> Iterator[None]:
    """Leaving autocast empties a cache that is the whole process's, and a step in another thread may be using it.

    Only leaving the outermost does; so there is one around it.
    """
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()


@contextmanager
def _beside_steps(device: torch.device, images: Tensor) -> Iterator[None]:
    """On a GPU: a stream apart, as steps wait in that of the caller, dozens of them."""
    if device.type != "cuda":
        yield
        return
    stream = _stream(device)
    if images.is_cuda:
        stream.wait_stream(torch.cuda.current_stream(images.device))
    with torch.cuda.stream(stream):
        yield


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """One for all who predict, as a device has few queues; what it computes goes before steps."""
    return torch.cuda.Stream(device, priority=-1)
