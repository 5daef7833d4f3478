"""A-GEM: averaged gradient episodic memory. A step must not raise the loss on a batch from memory.

    g: gradient of CE of A x, r: gradient of CE of A m
    g <- g - (g.r / r.r) r  if g.r < 0

over all parameters of the network at once. The memory is not learned from: it only takes out of g what would undo it.
It has a pass of its own, which BatchNorm's averages take in as well. In the first task there is nothing to protect, and
L is the stream's cross-entropy. m is drawn from the whole memory, samples of the current task included. A branch sees
the stream; what it adds to the network's gradient is part of g, and its own parameters are left alone.
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


class AGEMConfig(ReplayConfig):
    """Options of A-GEM."""

    name: Literal["agem"] = "agem"


@dataclass(frozen=True)
class Views:
    """Memory and stream, memory first; K is 0 in the first task."""

    images: Tensor  # (B, C, H, W) uint8, the stream's, un-augmented
    view: Tensor  # (K + B, C, H, W) floats, augmented
    labels: Tensor  # (K + B,)
    split: int  # K


@methods.register("agem")
class AGEM(ReplayMethod):
    """Averaged gradient episodic memory."""

    config_class = AGEMConfig
    config: AGEMConfig
    needs_boundaries = True

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Rows for the reference gradient, after the first task."""
        if task.index == 0:
            return Plan({}, path=("first task",))
        return Plan({"replay": memory.sample(self.config.memory_batch, generator)}, path=("later",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """[memory ; stream], augmented once; in the first task the stream."""
        later = plan.path == ("later",)
        batch, split = (self.joint(stream, plan, memory), len(plan.rows["replay"])) if later else (stream, 0)
        return Views(stream.images, self.augment(batch.images, generator), batch.labels, split)

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """The stream's pass and cross-entropy; the memory's are carried on to ``gradients``."""
        k, y = views.split, views.labels
        out, tap = peer.look(views.view[k:], Targets(y[k:]), lambda: self.augment(views.images, generator))
        reference = F.cross_entropy(peer.network(views.view[:k]).logits.float(), y[:k]) if k else None
        return Losses({"ce": F.cross_entropy(out.logits.float(), y[k:])}, tap, carry=reference)

    def gradients(self, peers: list[Peer], carries: list[Tensor | None]) -> None:
        """Take out of each network's gradient what opposes that of the memory."""
        for peer, reference in zip(peers, carries, strict=True):
            if reference is not None:
                learned = [p for p in peer.network.parameters() if p.grad is not None]
                r = torch.autograd.grad(reference, learned, materialize_grads=True)
                project([p.grad for p in learned if p.grad is not None], list(r))


def project(g: list[Tensor], r: list[Tensor]) -> None:
    """g <- g - (g.r / r.r) r in place if g.r < 0; both are vectors in pieces of equal shapes."""
    dot = torch.stack([piece.sum() for piece in torch._foreach_mul(g, r)]).sum()
    square = torch.stack(torch._foreach_norm(r)).square().sum()
    share = torch.where(dot < 0, dot / square, 0.0)  # without r, dot is 0
    torch._foreach_sub_(g, torch._foreach_mul(r, share))
