"""PCR: proxy-based contrastive replay, a cross-entropy in which only classes of the batch compete.

    L = mean over anchors i of  -log (exp(f_i . w_{y_i} / tau) / sum_{j != i} exp(f_i . w_{y_j} / tau))

f are the unit features of [m; A m] and [x; A x], each in a pass of its own, w the unit rows of the linear head (the
proxies) and tau 0.09; i and j run over all of them. So a class competes as often as it occurs, the anchor's own row
left out. The head predicts by its cosines, among the classes seen: nothing pushes the proxy of another one away. The
first batch of a run is only stored; boundaries mean nothing. A branch sees all anchors, with cosines / tau over all
classes as their logits.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from s6mod.branch.base import Seen, Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, methods
from s6mod.methods.replay import AmongSeen, ReplayConfig
from s6mod.networks import Output
from s6mod.networks.cosine import CosineAdapted, CosineResNet18
from s6mod.precision import full_precision


class PCRConfig(ReplayConfig):
    """Options of PCR."""

    name: Literal["pcr"] = "pcr"
    temperature: float = Field(0.09, gt=0, description="tau, by which cosines with the proxies are divided")


@dataclass(frozen=True)
class Views:
    """[memory ; memory augmented ; stream ; stream augmented]."""

    images: Tensor  # (K + B, C, H, W) uint8, un-augmented
    split: int  # K
    view: Tensor  # (2 K + 2 B, C, H, W)
    targets: Targets  # of the view
    seen: Tensor  # (num_classes,) 1 for classes seen so far, else 0


@methods.register("pcr")
class PCR(AmongSeen):
    """Proxy-based contrastive replay."""

    config_class = PCRConfig
    config: PCRConfig

    def make_network(self) -> CosineResNet18:
        """ResNet-18 with a head of proxies."""
        config = self.config
        return CosineResNet18(config.network, self.image_shape, self.num_classes, config.temperature)

    def adapt(self, module: nn.Module) -> CosineAdapted:
        """A person's module with a head of proxies."""
        return CosineAdapted(module, self.image_shape, self.num_classes, self.config.temperature)

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """Memory and stream, each as it is and augmented."""
        batch, k = self.joint(stream, plan, memory), len(plan.rows["replay"])
        labels = torch.cat([batch.labels[:k].repeat(2), batch.labels[k:].repeat(2)])
        return Views(batch.images, k, self._view(batch.images, k, generator), Targets(labels), plan.rows["seen"])

    def _view(self, images: Tensor, k: int, generator: torch.Generator) -> Tensor:
        plain, augmented = self.prepare(images), self.augment(images, generator)
        return torch.cat([plain[:k], augmented[:k], plain[k:], augmented[k:]])

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """A pass for the memory, one for the stream, and one loss of both."""
        k = views.split
        passes: list[Output] = [peer.network(part) for part in (views.view[: 2 * k], views.view[2 * k :])]
        out = Output(*(torch.cat(parts) for parts in zip(*passes, strict=True)))
        tap = peer.tap(out, views.targets, lambda: self._view(views.images, k, generator))
        tap = replace(tap, seen=lambda: Seen.both(views.view, out.heads, 2 * k))
        return Losses({"proxy": proxy_loss(out.logits, views.targets.labels)}, tap, carry=views.seen)


@full_precision
def proxy_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of ``logits`` (N, C) in which a class counts as often as it is the label of another row."""
    own = labels[:, None] == torch.arange(logits.shape[1], device=labels.device)  # (N, C)
    others = (own.sum(0) - own.long()).to(logits.dtype)  # (N, C): how many other rows are of each class
    chosen = logits.gather(1, labels[:, None]).squeeze(1)
    return ((logits + others.log()).logsumexp(1) - chosen).mean()
