"""SCR: supervised contrastive replay, which learns no classifier and predicts by the nearest class mean.

    L = SCL(z of [m; x] and A[m; x]),
    SCL = mean over anchors i of  -1/|P_i| sum_{p in P_i} log (exp(z_i . z_p / tau) / sum_{a != i} exp(z_i . z_a / tau))

z is the unit projection (a hidden layer, then 128 values), P_i are the others of i's label, tau is 0.07. Images as they
are and augmented share one pass. Class means are of backbone features, as in every method here. There is no
cross-entropy, so no logits: a branch is refused. The first batch of a run is only stored; boundaries mean nothing.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, methods
from s6mod.methods.expert_losses import supervised_contrastive
from s6mod.methods.replay import ReplayConfig, ReplayMethod
from s6mod.metrics import ncm_scores
from s6mod.networks import Output
from s6mod.networks.projection import ProjectedOutput, UnclassifiedAdapted, UnclassifiedResNet18


class SCRConfig(ReplayConfig):
    """Options of SCR."""

    name: Literal["scr"] = "scr"
    memory_batch: int = Field(100, ge=1, description="images replayed from memory in each step")
    projection_width: int = Field(128, ge=1, description="width of the projection that is compared")
    temperature: float = Field(0.07, gt=0, description="tau, by which cosines of projections are divided")


@dataclass(frozen=True)
class Views:
    """The joint batch, memory first."""

    images: Tensor  # (K + B, C, H, W) uint8, un-augmented
    view: Tensor  # (2 K + 2 B, C, H, W): the same as floats, then augmented
    targets: Targets  # of the view


@methods.register("scr")
class SCR(ReplayMethod):
    """Supervised contrastive replay."""

    config_class = SCRConfig
    config: SCRConfig
    primary = "ncm"
    memory_free = frozenset()
    has_logits = False

    def make_network(self) -> UnclassifiedResNet18:
        """ResNet-18 with a projection and no classifier."""
        return UnclassifiedResNet18(self.config.network, self.image_shape, self.config.projection_width)

    def adapt(self, module: nn.Module) -> UnclassifiedAdapted:
        """A person's module with a projection and no classifier."""
        return UnclassifiedAdapted(module, self.image_shape, self.config.projection_width)

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """[memory ; stream], as it is and augmented."""
        batch = self.joint(stream, plan, memory)
        return Views(batch.images, self._view(batch.images, generator), Targets(batch.labels.repeat(2)))

    def _view(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return torch.cat([self.prepare(images), self.augment(images, generator)])

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass, one contrastive loss."""
        out: ProjectedOutput = peer.network(views.view)
        scl = supervised_contrastive(out.projection[:, None], views.targets.labels, self.config.temperature)
        return Losses({"scl": scl}, peer.tap(out, views.targets, lambda: self._view(views.images, generator)))

    def scores(self, outputs: list[Output], reference: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """The nearest class mean, and nothing without a memory."""
        return {} if reference is None else {"ncm": ncm_scores(outputs[0].features, *reference)}
