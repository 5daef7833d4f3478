"""What an exported file says about itself, as one JSON object under the name ``s6mod``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from s6mod._version import __version__
from s6mod.config import Config
from s6mod.data.images import RESIZING
from s6mod.errors import InputError
from s6mod.learner import Learner
from s6mod.run_files import RunFiles
from s6mod.runs.folder import RunFolder

KEY = "s6mod"


class Metadata(Config):
    """What predicts, for which images, and what its labels mean."""

    version: str = Field(description="of s6mod that wrote the file")
    checksum: str = Field(description="SHA-256 of the graph (.onnx) or of its tensors (.pt2)")
    classes: list[str] = Field(description="names; a label is a position among them")
    candidates: list[int] = Field(description="labels to choose from; others have probability 0")
    image_shape: tuple[int, int, int] = Field(description="C, H, W of the images that it takes, uint8")
    resizing: str = Field(description="how files of another size are brought to it")
    method: str
    branch: str | None
    weights: str = Field(description="latest or averaged")
    statistics: str = Field(description="of BatchNorm: running or memory")
    scores: str = Field(description="the score table that predicts")
    steps: int = Field(description="batches learned before")

    @property
    def predictor(self) -> str:
        """What predicts, in words."""
        learner = self.method if self.branch is None else f"{self.method}+{self.branch}"
        among = f"{len(self.candidates)} of {len(self.classes)} classes"
        return f"{learner} by {self.weights}/{self.statistics}/{self.scores} among {among}"


def describe(learner: Learner, classes: Sequence[str], checksum: str) -> Metadata:
    """The metadata of a learner that has learned something."""
    config = learner.config
    return Metadata.parse(
        {
            "version": __version__,
            "checksum": checksum,
            "classes": list(classes),
            "candidates": sorted(learner.task.seen) if config.among_seen else list(range(len(learner.classes))),
            "image_shape": learner.image_shape,
            "resizing": RESIZING,
            "method": config.method.name,
            "branch": None if config.branch is None else config.branch.name,
            "weights": config.weights,
            "statistics": config.statistics,
            "scores": learner.primary,
            "steps": learner.steps,
        }
    )


def class_names(learner: Learner, folder: Path | None = None) -> tuple[str, ...]:
    """The names of a learner's labels: its own, those that the finished run in ``folder`` tells, else numbers."""
    if learner.classes.fixed is None:
        return tuple(map(str, learner.classes.names))
    run = None if folder is None or not RunFiles(folder).result.exists() else RunFolder(folder).read_result()
    named: Any = (run or {}).get("class_names")
    number = len(learner.classes)
    if isinstance(named, list) and len(named) == number and all(isinstance(name, str) for name in named):
        return tuple(named)
    return tuple(map(str, range(number)))


def checked_names(classes: Sequence[str], number: int) -> tuple[str, ...]:
    """A name for each of ``number`` labels, no two alike."""
    if len(classes) != number or len(set(classes)) != number:
        raise InputError(
            f"expected {number} different class names, one for each label, got {len(classes)}, {len(set(classes))} of "
            "them different; name every class"
        )
    return tuple(classes)
