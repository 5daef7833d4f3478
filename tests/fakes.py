"""A method unlike ER in every way that the contracts allow, so that nothing is shaped by ER alone.

Two peers that teach each other, a teacher copied at boundaries, a buffer carried from step to step, a memory batch
that grows, a batched reservoir, and predictions that read the memory.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Tap, Targets
from s6mod.methods import Batch, Losses, Method, MethodConfig, Plan, methods


class DuoConfig(MethodConfig):
    name: Literal["duo"] = "duo"
    memory_batch: int = 12


@dataclass(frozen=True)
class Views:
    images: Tensor
    targets: Targets
    distil: bool


@methods.register("duo")
class Duo(Method):
    config_class = DuoConfig
    needs_boundaries = True
    reservoir = "batched"
    primary = "ncm"  # which needs the memory
    num_peers = 2

    def __init__(self, config, image_shape, num_classes):
        super().__init__(config, image_shape, num_classes)
        self.register_buffer("mean_logit", torch.zeros(num_classes))

    def plan(self, labels, memory, task, generator):
        if len(memory) == 0:
            return None
        count = min(self.config.memory_batch, 6 * len(task.seen))
        return Plan({"replay": memory.sample(count, generator)}, path=(task.index > 0,))

    def draw(self, stream: Batch, plan, memory, generator):
        images, labels = memory.gather(plan.rows["replay"])
        x = self.prepare(torch.cat([stream.images, images]))
        x = x + 0.01 * torch.randn(x.shape, generator=generator, device=x.device)
        return Views(x, Targets(torch.cat([stream.labels, labels])), plan.path[0])

    def losses(self, peer, views, memory, generator):
        out = peer.network(views.images)
        terms = {"ce": F.cross_entropy(out.logits.float() - 0.1 * self.mean_logit, views.targets.labels)}
        if views.distil:
            with torch.no_grad():
                past = peer.teacher(views.images).logits
            terms["distil"] = 0.1 * F.mse_loss(out.logits, past)
        tap = Tap(out.feature_map, out.logits, views.targets, lambda: peer.network(views.images).feature_map)
        return Losses(terms, tap, carry=out.logits.detach())

    def couple(self, peers, views, losses):
        first, second = losses
        gap = F.mse_loss(first.tap.logits, second.tap.logits.detach())
        return [Losses({**first.terms, "gap": 0.1 * gap}, first.tap, first.carry), second]

    def commit(self, carries):
        self.mean_logit.lerp_(carries[-1].float().mean(0), 0.1)

    def end_task(self, peers):
        for peer in peers:
            peer.remember()
