"""Fine-tuning, the lower bound: cross-entropy on the stream batch alone.

    L = CE(g(A x), y)

Nothing is replayed, so ``memory_batch`` means nothing here. The learner writes its memory all the same, and the table
``ncm`` reads it. Boundaries mean nothing to it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod


class FinetuneConfig(ReplayConfig):
    """Options of fine-tuning."""

    name: Literal["finetune"] = "finetune"


@dataclass(frozen=True)
class Views:
    """The stream batch."""

    images: Tensor  # (B, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    targets: Targets


@methods.register("finetune")
class Finetune(ReplayMethod):
    """Learning without memory."""

    config_class = FinetuneConfig
    config: FinetuneConfig

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Every batch is learned, the first one too."""
        return Plan({})

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The stream, augmented once."""
        return Views(stream.images, self.augment(stream.images, generator), Targets(stream.labels))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One forward pass, one cross-entropy."""
        out, tap = peer.look(views.view, views.targets, lambda: self.augment(views.images, generator))
        return Losses({"ce": F.cross_entropy(out.logits.float(), views.targets.labels)}, tap)
