"""What the field's baselines share: ER's augmentation, and a batch of rows drawn uniformly from memory.

The first batch of a run, when the memory is empty, is only stored, as in ER. What is learned from stream and memory is
each method's business.
"""

from typing import Any

import torch
from torch import Tensor

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, augmentation
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Method, MethodConfig, Plan, Task
from s6mod.networks import Output


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


class AmongSeen(ReplayMethod):
    """A replay method in whose loss only classes that were seen compete, so that its head chooses among these alone.

    Outputs of the others stay as they began: nothing pushes them down. ``losses`` carries the row ``seen`` of the plan.
    """

    seen: Tensor  # (num_classes,) bool: classes that the head chooses among; all before the first step

    def __init__(self, config: ReplayConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.register_buffer("seen", torch.ones(num_classes, dtype=torch.bool))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """States of ER-ACE once had no ``seen``: until its next step such a learner chooses among all."""
        state_dict.setdefault(f"{prefix}seen", self.seen)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows to replay, and the classes seen so far."""
        plan = super().plan(labels, memory, task, generator)
        return plan and Plan({**plan.rows, "seen": self.marked(torch.tensor(task.seen))})

    def marked(self, classes: Tensor) -> Tensor:
        """(num_classes,) 1 for these classes, else 0."""
        marks = torch.zeros(self.num_classes, dtype=torch.int64)
        marks[classes] = 1
        return marks

    def commit(self, carries: list[Tensor]) -> None:
        """Keep which classes have been seen."""
        self.seen.copy_(carries[0])

    def scores(self, outputs: list[Output], reference: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """As always, the head's among the classes seen."""
        tables = super().scores(outputs, reference)
        return tables | {"head": tables["head"].masked_fill(~self.seen, -torch.inf)}
