"""What the field's baselines share: ER's augmentation, and a batch of rows drawn uniformly from memory.

The first batch of a run, when the memory is empty, is only stored, as in ER. What is learned from stream and memory is
each method's business.
"""

import torch
from torch import Tensor

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, augmentation
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Method, MethodConfig, Plan, Task


class ReplayConfig(MethodConfig):
    """Options of replay with augmentation."""

    augment: KorniaAugmentConfig | None = KorniaAugmentConfig()


class ReplayMethod(Method):
    """A method that replays rows of the memory beside the stream batch."""

    config: ReplayConfig

    def __init__(self, config: ReplayConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = augmentation(KorniaAugment, config.augment)

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows to replay; nothing to do while the memory is empty."""
        if len(memory) == 0:
            return None
        return Plan({"replay": memory.sample(self.config.memory_batch, generator)})

    def joint(self, stream: Batch, plan: Plan, memory: ReplayMemory) -> Batch:
        """[memory ; stream], K + B images, un-augmented."""
        images, labels = memory.gather(plan.rows["replay"])
        return Batch(torch.cat([images, stream.images]), torch.cat([labels, stream.labels]))
