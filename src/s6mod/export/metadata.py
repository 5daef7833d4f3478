"""What an exported file says about itself, as one JSON object under the name ``s6mod``."""

from collections.abc import Sequence

from pydantic import Field

from s6mod._version import __version__
from s6mod.config import Config
from s6mod.data.images import RESIZING
from s6mod.errors import InputError

KEY = "s6mod"


class Metadata(Config):
    """What predicts, for which images, and what its labels mean."""

    version: str = Field(__version__, description="of s6mod that wrote the file")
    checksum: str = Field("", description="SHA-256 of the graph (.onnx) or of its tensors (.pt2)")
    classes: list[str] = Field(description="names; a label is a position among them")
    candidates: list[int] = Field(description="labels to choose from; others have probability 0")
    image_shape: tuple[int, int, int] = Field(description="C, H, W of the images that it takes, uint8")
    resizing: str = Field(RESIZING, description="how files of another size are brought to it")
    method: str
    branch: str | None
    weights: str = Field(description="latest or averaged")
    statistics: str = Field(description="of BatchNorm: running or memory")
    scores: str = Field(description="the score table that predicts")
    temperature: float = Field(1.0, gt=0, description="by what scores are divided before the softmax")
    steps: int = Field(description="batches learned before")

    @property
    def predictor(self) -> str:
        """What predicts, in words."""
        learner = self.method if self.branch is None else f"{self.method}+{self.branch}"
        among = f"{len(self.candidates)} of {len(self.classes)} classes"
        return f"{learner} by {self.weights}/{self.statistics}/{self.scores} among {among}"


def checked_names(classes: Sequence[str], number: int) -> tuple[str, ...]:
    """A name for each of ``number`` labels, no two alike."""
    if len(classes) != number or len(set(classes)) != number:
        raise InputError(
            f"expected {number} different class names, one for each label, got {len(classes)}, {len(set(classes))} of "
            "them different; name every class"
        )
    return tuple(classes)
