"""Experience replay (ER): cross-entropy on the stream batch joined with a batch from memory.

    L = CE(g(A[m; x]), [y_m; y])

over all classes, mean over all samples, one augmented view A, one forward pass. The first batch of a run, when the
memory is empty, is only stored. Boundaries mean nothing to it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, augmentation
from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Method, MethodConfig, Peer, Plan, Task, methods


class ERConfig(MethodConfig):
    """Options of ER."""

    name: Literal["er"] = "er"
    augment: KorniaAugmentConfig | None = KorniaAugmentConfig()


@dataclass(frozen=True)
class Views:
    """The joint batch, memory first."""

    images: Tensor  # (K + B, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    targets: Targets


@methods.register("er")
class ER(Method):
    """Experience replay."""

    config_class = ERConfig
    config: ERConfig

    def __init__(self, config: ERConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = augmentation(KorniaAugment, config.augment)

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows to replay; nothing to do while the memory is empty."""
        if len(memory) == 0:
            return None
        return Plan({"replay": memory.sample(self.config.memory_batch, generator)})

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """[memory ; stream], augmented once."""
        images, labels = memory.gather(plan.rows["replay"])
        joint = torch.cat([images, stream.images])
        return Views(joint, self.augment(joint, generator), Targets(torch.cat([labels, stream.labels])))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One forward pass, one cross-entropy."""
        out, tap = peer.look(views.view, views.targets, lambda: self.augment(views.images, generator))
        return Losses({"ce": F.cross_entropy(out.logits.float(), views.targets.labels)}, tap)
