"""Controls for S6MOD: two penalties on the base head alone, registered as branches that have no parameters.

Q of the branch is nearly flat, so L_Diff resembles them; what S6MOD gains beyond them its branch has earned.
"""

import math
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Branch, BranchConfig, BranchShape, Tap, branches
from s6mod.precision import full_precision
from s6mod.registry import NamedConfig

CONTROLS = ("confidence", "smoothing")


class ConfidencePenaltyConfig(BranchConfig):
    """Configuration of the control ``confidence``."""

    name: Literal["confidence"] = "confidence"
    alpha: float = Field(1.0, ge=0, description="weight of KL(P || uniform)")


class LabelSmoothingConfig(BranchConfig):
    """Configuration of the control ``smoothing``."""

    name: Literal["smoothing"] = "smoothing"
    alpha: float = Field(1.0, ge=0, description="weight of KL(uniform || P)")


class _Control(Branch):
    """A penalty on P, the softmax of the base logits, over all classes of the head."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    @classmethod
    def build(cls, config: NamedConfig, shape: BranchShape) -> Self:
        """The control with the weight that its configuration names; no network's shape matters to it."""
        assert isinstance(config, ConfidencePenaltyConfig | LabelSmoothingConfig)
        return cls(config.alpha)


@branches.register("confidence")
class ConfidencePenalty(_Control):
    """alpha KL(P || uniform): confident predictions cost."""

    config_class: ClassVar[type[NamedConfig]] = ConfidencePenaltyConfig

    def losses(self, tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The one term ``confidence``."""
        return {"confidence": self.alpha * confidence(tap.logits)}


@branches.register("smoothing")
class LabelSmoothing(_Control):
    """alpha KL(uniform || P): label smoothing as a term of its own."""

    config_class: ClassVar[type[NamedConfig]] = LabelSmoothingConfig

    def losses(self, tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The one term ``smoothing``."""
        return {"smoothing": self.alpha * smoothing(tap.logits)}


@full_precision
def confidence(logits: Tensor) -> Tensor:
    """KL(P || uniform) of P = softmax(logits), mean over samples."""
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1).mean() + math.log(logits.shape[1])


@full_precision
def smoothing(logits: Tensor) -> Tensor:
    """KL(uniform || P) of P = softmax(logits), mean over samples."""
    return -F.log_softmax(logits, dim=1).mean() - math.log(logits.shape[1])
