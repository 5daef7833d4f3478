"""A service's learner as it lies on disk: a checkpoint or a snapshot, with all that the service needs to go on.

It is a saved learner like any other: ``Learner.load``, ``s6mod predict`` and ``s6mod export`` open it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from s6mod.config import Config
from s6mod.data.images import RESIZING
from s6mod.engine.checkpoint import Snapshot, fitting, read_state
from s6mod.errors import CheckpointError
from s6mod.learner import Learner
from s6mod.learner.check import saved_config
from s6mod.learner.own import Own
from s6mod.run_files import RunFiles
from s6mod.serve.account import Account, Kept


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


class _Service(Config):
    """What is saved beside the learner."""

    journal: int = Field(ge=0, description="number of the latest row that the learner holds")
    size: tuple[int, int] = Field(description="height and width of all images")
    resizing: str = Field(description="how images come to it")
    account: Kept


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
        account = Account.of(told.account)
    if told.resizing != RESIZING:
        raise CheckpointError(
            f"expected images that are resized as here ({RESIZING}), got a service in {folder} with another rule "
            f"({told.resizing}); use the s6mod version that wrote it"
        )
    return State(learner, told.size, account, told.journal)
