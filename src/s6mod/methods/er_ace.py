"""ER-ACE: asymmetric cross-entropy, which keeps arriving classes from pushing old ones away.

    L = CE(g(A x), y) over the classes of the stream batch + CE(g(A m), y_m) over the classes seen

So the stream moves the outputs of its own classes alone, and nothing moves those of classes that have not come: pushed
down by every step until then, they would not rise above old ones in a task. Two means, added, of one pass over [m; x],
so that BatchNorm normalises few stream images of few classes by the statistics of all. The head predicts among the
classes seen. Boundaries mean nothing to it. The first batch of a run is only stored. A branch sees [m; x] with all
logits.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import AmongSeen, ReplayConfig
from s6mod.precision import full_precision


class ERACEConfig(ReplayConfig):
    """Options of ER-ACE."""

    name: Literal["er-ace"] = "er-ace"


@dataclass(frozen=True)
class Views:
    """Memory and stream, memory first."""

    images: Tensor  # (K + B, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    targets: Targets
    split: int  # K
    arrived: Tensor  # (num_classes,) 1 for classes of the stream batch, else 0
    seen: Tensor  # (num_classes,) 1 for classes seen so far, else 0


@methods.register("er-ace")
class ERACE(AmongSeen):
    """Experience replay with asymmetric cross-entropy."""

    config_class = ERACEConfig
    config: ERACEConfig

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows to replay, the classes seen so far, and those of the stream batch."""
        plan = super().plan(labels, memory, task, generator)
        return plan and Plan({**plan.rows, "arrived": self.marked(labels)})

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """[memory ; stream], augmented once."""
        batch, split = self.joint(stream, plan, memory), len(plan.rows["replay"])
        view = self.augment(batch.images, generator)
        return Views(batch.images, view, Targets(batch.labels), split, plan.rows["arrived"], plan.rows["seen"])

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One forward pass, a cross-entropy for the stream and one for the memory."""
        k, y = views.split, views.targets.labels
        out, tap = peer.look(views.view, views.targets, lambda: self.augment(views.images, generator))
        terms = {
            "stream": masked_cross_entropy(out.logits[k:], y[k:], views.arrived),
            "memory": masked_cross_entropy(out.logits[:k], y[:k], views.seen),
        }
        return Losses(terms, tap, carry=views.seen)


@full_precision
def masked_cross_entropy(logits: Tensor, labels: Tensor, classes: Tensor) -> Tensor:
    """Mean cross-entropy of ``logits`` (B, C) over the classes where ``classes`` (C,) is not 0; labels are such."""
    return F.cross_entropy(logits.masked_fill(classes == 0, -torch.inf), labels)
