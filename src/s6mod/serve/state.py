"""A service's learner as it lies on disk: a checkpoint or a snapshot, with all that the service needs to go on.

It is a saved learner like any other: ``Learner.load``, ``s6mod predict`` and ``s6mod export`` open it.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field
from torch import Tensor

from s6mod.config import Config
from s6mod.data.images import RESIZING
from s6mod.engine.checkpoint import Snapshot, fitting, read_state
from s6mod.errors import CheckpointError
from s6mod.learner import Learner
from s6mod.learner.check import saved_config
from s6mod.learner.classes import Classes, Name
from s6mod.learner.own import Own
from s6mod.learner.prequential import WINDOW, Tally
from s6mod.run_files import RunFiles

MOST_POINTS = 400  # of the curve; then every second one goes
ENOUGH = 100  # tested images that make an accuracy worth acting on


class ServiceFiles:
    """Where the parts of a service lie."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = RunFiles(folder).checkpoint  # so that the folder opens as a learner
        self.journal = folder / "journal.db"
        self.snapshots = folder / "snapshots"
        self.predictions = folder / "predictions.db"

    def snapshot(self, number: int) -> Path:
        """The folder of a snapshot."""
        return self.snapshots / f"{number:09d}"


class _Account(Config):
    """An account as it is saved."""

    sums: list[tuple[int, float, float, float, float]] = Field(min_length=1)  # of the tally
    window: list[tuple[int, int]] = Field(max_length=WINDOW)
    images: list[tuple[Name, int]]
    curve: list[tuple[int, float]]
    stride: int = Field(ge=1)


class Account:
    """How a service does: accuracy before learning, images by class, and both over time.

    A batch is tested by the copy that predicts when its turn comes, as whoever asked then was answered. It is no part
    of what learns: it is saved beside it, and a rollback takes it back as well.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.images: Counter[Name] = Counter()  # learned, by label
        self.curve: list[tuple[int, float]] = []  # journal number, windowed accuracy in percent
        self._stride = 1  # batches between two points
        self._since = 0

    def count(self, number: int, labels: Sequence[Name], classes: Classes, hits: Tensor | None) -> None:
        """Add a batch that was learned, the journal's ``number``; ``hits``: which images were predicted right."""
        self.images.update(labels)
        if hits is None:
            return
        self.tally.count_hits(classes.numbers(list(labels), len(labels)), hits)
        self._since += 1
        if self._since >= self._stride:
            self.curve.append((number, round(self._windowed(), 2)))
            self._since = 0
        if len(self.curve) > MOST_POINTS:
            self.curve, self._stride = self.curve[1::2], 2 * self._stride

    def accuracy(self) -> float | None:
        """Windowed, in percent; None while too few images were tested."""
        return self._windowed() if len(self.tally.window) >= ENOUGH else None

    def _windowed(self) -> float:
        return 100 * sum(hit for _, hit in self.tally.window) / len(self.tally.window)

    def kept(self) -> _Account:
        """As it is saved."""
        sums = [(number, a, b, c, d) for number, (a, b, c, d) in self.tally.sums.items()]
        images, window = list(self.images.items()), list(self.tally.window)
        return _Account(sums=sums, window=window, images=images, curve=self.curve, stride=self._stride)

    @classmethod
    def of(cls, kept: _Account) -> "Account":
        """What ``kept`` gave."""
        account = cls()
        account.tally.sums = {number: list(values) for number, *values in kept.sums}
        account.tally.window = deque(kept.window, maxlen=WINDOW)
        account.images = Counter(dict(kept.images))
        account.curve, account._stride = list(kept.curve), kept.stride
        return account


class _Service(Config):
    """What is saved beside the learner."""

    journal: int = Field(ge=0, description="number of the latest row that the learner holds")
    size: tuple[int, int] = Field(description="height and width of all images")
    resizing: str = Field(description="how images come to it")
    account: _Account


@dataclass(frozen=True)
class State:
    """A learner at one moment of its service; the writer's own goes on, so it is saved before the next batch."""

    learner: Learner
    size: tuple[int, int]
    account: Account
    number: int = 0  # of the journal

    def at(self, number: int) -> "State":
        """The same after that row."""
        return replace(self, number=number)

    def snapshot(self) -> Snapshot:
        """A copy to be written."""
        service = _Service(journal=self.number, size=self.size, resizing=RESIZING, account=self.account.kept())
        header = {"kind": "learner", "config": self.learner.config.plain(), "service": service.plain()}
        return Snapshot.of(self.learner.state_dict(), header)


def read(folder: Path, device: str | None) -> State:
    """What ``State.snapshot`` wrote there."""
    state, header = read_state(folder)
    if "service" not in header:
        raise CheckpointError(
            f"expected the learner of a service in {folder}, got another; give it with --from and choose a new folder"
        )
    with fitting(folder):
        told = _Service.parse(header["service"])
        learner = Learner.from_config(saved_config(folder, header, device, Own()))
        learner.load_state_dict(state)
        # Labels are checked before they are accepted. What an older version accepted is learned as it did.
        learner.classes = replace(learner.classes, strict=False)
        account = Account.of(told.account)
    if told.resizing != RESIZING:
        raise CheckpointError(
            f"expected images that are resized as here ({RESIZING}), got a service in {folder} with another rule "
            f"({told.resizing}); use the s6mod version that wrote it"
        )
    return State(learner, told.size, account, told.journal)
