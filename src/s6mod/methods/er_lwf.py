"""ER-LwF: experience replay, held to what a copy of the network from the last boundary says of old classes.

    L = CE(g(A[m; x]), [y_m; y]) + w T^2 KL(softmax(g_prev(A[m; x]) / T), softmax(g(A[m; x]) / T)) over old classes

with T = 2 and w = 1; the mean is over samples. Both networks see the same view, so that one pass of each is enough.
Old classes are those learned before the last boundary; in the first task there is nothing to hold to, and L is ER's.
The copy is in train mode: it normalises by the statistics of the batch, as the network does. The first batch of a run
is only stored.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod
from s6mod.precision import full_precision


class ERLwFConfig(ReplayConfig):
    """Options of ER-LwF."""

    name: Literal["er-lwf"] = "er-lwf"
    distillation_weight: float = Field(1.0, ge=0, description="w of the divergence from the network's past")
    temperature: float = Field(2.0, gt=0, description="T, by which both networks' logits are divided")


@dataclass(frozen=True)
class Views:
    """The joint batch, memory first."""

    images: Tensor  # (K + B, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    targets: Targets
    later: bool  # whether a boundary has been passed


@methods.register("er-lwf")
class ERLwF(ReplayMethod):
    """Experience replay with learning without forgetting."""

    config_class = ERLwFConfig
    config: ERLwFConfig
    needs_boundaries = True
    learned: Tensor  # (num_classes,) bool: classes that the network was trained on so far
    old: Tensor  # (num_classes,) bool: those before the last boundary

    def __init__(self, config: ERLwFConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.register_buffer("learned", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("old", torch.zeros(num_classes, dtype=torch.bool))

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows to replay; the path tells the first task from later ones."""
        plan = super().plan(labels, memory, task, generator)
        return plan and Plan(plan.rows, path=("later" if task.index else "first task",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """[memory ; stream], augmented once."""
        batch = self.joint(stream, plan, memory)
        view = self.augment(batch.images, generator)
        return Views(batch.images, view, Targets(batch.labels), later=plan.path == ("later",))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass of the network, after the first task one of its past."""
        labels = views.targets.labels
        out, tap = peer.look(views.view, views.targets, lambda: self.augment(views.images, generator))
        terms = {"ce": F.cross_entropy(out.logits.float(), labels)}
        if views.later:
            assert peer.teacher is not None
            with torch.no_grad():
                past = peer.teacher(views.view).logits
            divergence = masked_divergence(past, out.logits, self.old, self.config.temperature)
            terms["distil"] = self.config.distillation_weight * divergence
        return Losses(terms, tap, carry=labels)

    def commit(self, carries: list[Tensor]) -> None:
        """Note which classes the network was trained on."""
        self.learned.index_fill_(0, carries[0], True)

    def end_task(self, peers: list[Peer]) -> None:
        """The network as it is becomes the past, and all classes learned so far are old."""
        self.old.copy_(self.learned)
        for peer in peers:
            peer.remember()


@full_precision
def masked_divergence(past: Tensor, logits: Tensor, columns: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(past / T), softmax(logits / T)) of tables (N, C) over the ``columns`` (C,) that are true.

    A column left out has the smallest finite number in both tables: its probability is 0, and without any column true
    both are uniform and the divergence is 0.
    """
    least = torch.finfo(logits.dtype).min
    p, q = (F.log_softmax((t / temperature).masked_fill(~columns, least), dim=1) for t in (past, logits))
    return temperature**2 * F.kl_div(q, p, reduction="batchmean", log_target=True)
