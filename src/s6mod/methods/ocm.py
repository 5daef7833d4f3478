"""OCM: contrastive learning of rotated images against memory, and a copy of the network from before the task.

With R16 the sixteen-fold rotation, A the augmentation, x the stream and m the memory batch, the first task minimises

    L = CE(g(A x)) + L_n(x)

and every later one, where cross-entropy sees the memory only,

    L = CE(g(A m)) + L_n(x) + L_uni(m) + L_pre(m) + MSE(g_prev(A' m), g(A m)) over the classes of earlier tasks.

The contrastive losses are those of ``contrastive`` on [R16 x ; A R16 x] and [R16 m ; A R16 m]. Two passes update the
BatchNorm statistics of the network, in this order: all contrastive images at once, then what cross-entropy sees.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, augmentation
from s6mod.branch.base import Targets
from s6mod.errors import ConfigError
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, OptimizerConfig, Peer, Plan, Rate, Task, methods
from s6mod.methods.contrastive import EPSILON, ContrastiveConfig, ContrastiveMethod, Rotated, previous_loss
from s6mod.networks.projection import ProjectedAdapted, ProjectedResNet18
from s6mod.precision import full_precision


class OCMOptimizerConfig(OptimizerConfig):
    """The optimiser of OCM."""

    lr: float = Field(1e-3, gt=0, description="learning rate")
    betas: tuple[Rate, Rate] = Field((0.9, 0.99), description="decay rates of the moment estimates")


class OCMConfig(ContrastiveConfig):
    """Options of OCM.

    The published OCM-CCLDC asked its teacher for features where it meant logits: feature c is what the logit of class c
    is drawn to. ``mse_target: features`` is that, and what OCM-CCLDC starts from.
    """

    name: Literal["ocm"] = "ocm"
    optimizer: OCMOptimizerConfig = OCMOptimizerConfig()
    augment: KorniaAugmentConfig | None = KorniaAugmentConfig()
    scale: float = Field(0.5, gt=0, description="c, which multiplies similarities after the first task")
    mse_target: Literal["logits", "features"] = Field(
        "logits", description="what of the teacher the logits of old classes are drawn to"
    )


@dataclass(frozen=True)
class WithRotated:
    """A batch, of the stream or from memory, as it is and rotated."""

    plain: Batch
    rotated: Rotated


@methods.register("ocm")
class OCM(ContrastiveMethod):
    """Online continual learning through mutual information maximisation."""

    config_class = OCMConfig
    config: OCMConfig
    needs_boundaries = True
    seen: Tensor  # (num_classes,) bool: classes met so far
    old: Tensor  # (num_classes,) bool: those met before the last boundary

    def __init__(self, config: OCMConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = augmentation(KorniaAugment, config.augment)
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("old", torch.zeros(num_classes, dtype=torch.bool))

    def make_network(self) -> ProjectedResNet18:
        """ResNet-18 with a projection."""
        network = super().make_network()
        self._check_width(network.num_features)
        return network

    def adapt(self, module: nn.Module) -> ProjectedAdapted:
        """A person's module with a projection."""
        network = super().adapt(module)
        self._check_width(network.num_features)
        return network

    def _check_width(self, features: int) -> None:
        """A pair's quirk needs the network wide enough."""
        if self.config.mse_target == "features" and features < self.num_classes:
            raise ConfigError(
                f"expected a feature for each of {self.num_classes} classes with mse_target='features', "
                f"got {features}; widen the network or set mse_target='logits'"
            )

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Nothing is replayed in the first task; later, rows of the memory."""
        if task.index == 0:
            self.check_images(len(labels))
            return Plan({}, path=("first task",))
        self.check_images(min(self.config.memory_batch, len(memory)))
        return Plan({"replay": memory.sample(self.config.memory_batch, generator)}, path=("later",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> list[WithRotated]:
        """The stream and, after the first task, the memory batch."""
        batches = [stream, *(Batch(*memory.gather(rows)) for rows in plan.rows.values())]
        return [WithRotated(batch, self.rotate(batch.images, batch.labels, generator)) for batch in batches]

    def losses(self, peer: Peer, views: list[WithRotated], memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass for the contrastive losses, one for cross-entropy; after the first task the teacher's two."""
        last = views[-1]  # what cross-entropy learns: the memory if there is one
        x, y = last.plain.images, last.plain.labels

        def view() -> Tensor:
            return self.augment(x, generator)

        z, contrastive = self.contrast(peer, [part.rotated for part in views], generator)
        out, tap = peer.look(view(), Targets(y), view)

        terms = {"ce": F.cross_entropy(out.logits.float(), y)} | contrastive
        if len(views) > 1:
            plain = len(z[1]) // 2  # rows of the memory that are not augmented
            past_z, target = self._past(peer, last.rotated.images[:plain], view())
            terms["previous"] = previous_loss(
                z[1][:plain], past_z, last.rotated.labels[:plain], self.config.temperature, EPSILON
            )
            terms["mse"] = masked_mse(out.logits, target, self.old)
        return Losses(terms, tap, carry=views[0].plain.labels)

    @torch.no_grad()
    def _past(self, peer: Peer, rotated: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's projections of rotated images, and what it gives the logits of a view as their target.

        It is in train mode and so normalises each of the two passes by its own batch statistics.
        """
        assert peer.teacher is not None
        z, out = peer.teacher(rotated).projection, peer.teacher(view)
        return z, out.logits if self.config.mse_target == "logits" else out.features[:, : self.num_classes]

    def commit(self, carries: list[Tensor]) -> None:
        """Note which classes have been met."""
        self.seen.index_fill_(0, carries[-1], True)

    def end_task(self, peers: list[Peer]) -> None:
        """The networks as they are become the teachers, and all classes met so far are old."""
        self.old.copy_(self.seen)
        for peer in peers:
            peer.remember()


@full_precision
def masked_mse(logits: Tensor, past_logits: Tensor, columns: Tensor) -> Tensor:
    """Mean squared difference of two tables (N, num_classes) over the columns where ``columns`` is true."""
    return ((logits - past_logits).square() * columns).sum() / (len(logits) * columns.sum())
