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
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import KorniaAugment, KorniaAugmentConfig, rotate16, rotate16_labels
from s6mod.branch.base import Tap, Targets
from s6mod.branch.precision import full_precision
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Method, MethodConfig, OptimizerConfig, Peer, Plan, Rate, Task, methods
from s6mod.methods.contrastive import new_loss, previous_loss, similarity, slice_start, uniform_loss
from s6mod.networks.projection import ProjectedOutput, ProjectedResNet18


class OCMOptimizerConfig(OptimizerConfig):
    """The optimiser of OCM."""

    lr: float = Field(1e-3, gt=0, description="learning rate")
    betas: tuple[Rate, Rate] = Field((0.9, 0.99), description="decay rates of the moment estimates")


class OCMConfig(MethodConfig):
    """Options of OCM."""

    name: Literal["ocm"] = "ocm"
    optimizer: OCMOptimizerConfig = OCMOptimizerConfig()
    augment: KorniaAugmentConfig = KorniaAugmentConfig()
    projection_width: int = Field(
        128,
        ge=1,
        description="width of the projection and of the slice of features compared with it (all, if there are fewer)",
    )
    temperature: float = Field(0.07, gt=0, description="tau, by which similarities are divided")
    first_scale: float = Field(1.0, gt=0, description="c in the first task: multiplies similarities")
    scale: float = Field(0.5, gt=0, description="c in later tasks")
    epsilon: float = Field(1e-8, gt=0, description="added to norms, to denominators and inside logarithms")


@dataclass(frozen=True)
class Rotated:
    """Sixteen variants of n images, each a class of its own, as they are and then augmented."""

    images: Tensor  # (2 * 16 n, C, H, W) float
    labels: Tensor  # (2 * 16 n,)


@dataclass(frozen=True)
class Views:
    """What the contrastive losses see, and whose augmented views cross-entropy sees."""

    stream: Rotated
    memory: Rotated | None  # None in the first task
    images: Tensor  # (N, C, H, W) uint8, un-augmented: the stream in the first task, later the memory batch
    targets: Targets
    arrived: Tensor  # (B,) labels of the stream


@methods.register("ocm")
class OCM(Method):
    """Online continual learning through mutual information maximisation."""

    config_class = OCMConfig
    config: OCMConfig
    needs_boundaries = True
    seen: Tensor  # (num_classes,) bool: classes met so far
    old: Tensor  # (num_classes,) bool: those met before the last boundary

    def __init__(self, config: OCMConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        rotate16(torch.empty(1, *image_shape))  # refuses images that cannot be rotated before any is learned
        self.augment = KorniaAugment(config.augment)
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("old", torch.zeros(num_classes, dtype=torch.bool))

    def make_network(self) -> ProjectedResNet18:
        """ResNet-18 with a projection."""
        config = self.config
        return ProjectedResNet18(config.network, self.image_shape, self.num_classes, config.projection_width)

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Nothing is replayed in the first task; later, rows of the memory."""
        if task.index == 0:
            return Plan({}, path=("first task",))
        return Plan({"replay": memory.sample(self.config.memory_batch, generator)}, path=("later",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The rotated images in both views."""
        rotated = self._rotate(stream.images, stream.labels, generator)
        if "replay" not in plan.rows:
            return Views(rotated, None, stream.images, Targets(stream.labels), stream.labels)
        images, labels = memory.gather(plan.rows["replay"])
        return Views(rotated, self._rotate(images, labels, generator), images, Targets(labels), stream.labels)

    def _rotate(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Rotated:
        variants = rotate16(images)
        both = torch.cat([self.prepare(variants), self.augment(variants, generator)])
        return Rotated(both, rotate16_labels(labels, self.num_classes).repeat(2))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass for the contrastive losses, one for cross-entropy; after the first task the teacher's two."""
        tau, epsilon = self.config.temperature, self.config.epsilon
        blocks = [views.stream] if views.memory is None else [views.stream, views.memory]
        rows = [len(block.images) for block in blocks]
        scale = self.config.first_scale if views.memory is None else self.config.scale

        both: ProjectedOutput = peer.network(torch.cat([block.images for block in blocks]))
        z = both.projection.split(rows)
        S = [self._similarity(*part, scale, generator) for part in zip(z, both.features.split(rows), strict=True)]
        out: ProjectedOutput = peer.network(self.augment(views.images, generator))

        terms = {
            "ce": F.cross_entropy(out.logits.float(), views.targets.labels),
            "new": new_loss(S[0], views.stream.labels, tau, epsilon),
        }
        if views.memory is not None:
            terms["uniform"] = uniform_loss(S[1], views.memory.labels, tau, epsilon)
            plain = rows[1] // 2  # rows of the memory that are not augmented
            past_z, past_logits = self._past(peer, views.memory.images[:plain], views.images, generator)
            terms["previous"] = previous_loss(z[1][:plain], past_z, views.memory.labels[:plain], tau, epsilon)
            terms["mse"] = masked_mse(out.logits, past_logits, self.old)

        def again() -> Tensor:
            feature_map: Tensor = peer.network(self.augment(views.images, generator)).feature_map
            return feature_map

        return Losses(terms, Tap(out.feature_map, out.logits, views.targets, again), carry=views.arrived)

    def _similarity(self, z: Tensor, f: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        start = slice_start(f.shape[1], z.shape[1], generator, f.device)
        return similarity(z, f, start, scale, self.config.epsilon)

    @torch.no_grad()
    def _past(self, peer: Peer, rotated: Tensor, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The teacher's projections of rotated images, and its logits of a view of its own of ``images``.

        It is in train mode and so normalises each of the two passes by its own batch statistics.
        """
        assert peer.teacher is not None
        return peer.teacher(rotated).projection, peer.teacher(self.augment(images, generator)).logits

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
