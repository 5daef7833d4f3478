"""What a service is told when it starts, and how it refuses."""

from dataclasses import dataclass

from s6mod.errors import S6modError


@dataclass(frozen=True)
class Limits:
    """How much a client may send, and how much may wait."""

    body: int = 16 * 2**20  # bytes of a request
    pixels: int = 16_000_000  # of one image file; decoding takes several bytes for each
    images: int = 256  # of one request
    classes: int = 1000  # of a learner that grows
    waiting: int = 256  # batches that are accepted and not learned yet
    asking: int = 64  # predictions that are worked on or wait for it, and as many other requests


@dataclass(frozen=True)
class Rules:
    """When the writer saves, takes a snapshot or rolls back by itself."""

    checkpoint_seconds: float = 30.0  # between two checkpoints, while there is something new
    drain_seconds: float = 20.0  # for what still waits when the service is asked to end
    snapshot_every: int = 1000  # batches learned; 0: never
    snapshots: int = 20  # the newest that are kept
    fall: float | None = None  # points of windowed accuracy below the best snapshot at which to go back to it


class RefusedError(S6modError):
    """A request that is not done: one sentence and a status of HTTP."""

    def __init__(self, status: int, sentence: str, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry = status, retry  # retry: seconds after which it may go
