"""OnPro: prototypes of stream and memory, each class held apart from the others, say which memory images are mixed.

With R16 the sixteen-fold rotation, A the augmentation, x the stream and b a batch from memory, the first task minimises

    L = CE(g(A x)) + L_n(x) + OPE(x) + OPE(b)

and every later one, with a memory batch m0 and m made of it by adaptive prototypical feedback (``feedback``),

    L = CE(g(A m)) + L_n(x) + L_uni(m) + OPE(x) + OPE(m0).

L_n and L_uni are those of ``contrastive`` on [R16 x ; A R16 x] and [R16 m ; A R16 m]. OPE, the online prototype
equilibrium, compares [x ; A x] and [m0 ; A m0]. Three passes update the BatchNorm statistics: all contrastive images;
then, in the first task, the prototypes' images and what cross-entropy sees, later these two the other way round. In a
task's first batch m is m0, since the prototypes are still those of the task before.

The table ``ncm`` compares features, as in every method; in the published code of OnPro it compares logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import TransformLayers, TransformLayersConfig, augmentation
from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods import feedback
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.contrastive import EPSILON, ContrastiveConfig, ContrastiveMethod, Rotated
from s6mod.methods.prototypes import equilibrium
from s6mod.networks import NetworkConfig

PER_CLASS = 7  # images replayed after the first task, at most this many for each class seen


class OnProNetworkConfig(NetworkConfig):
    """Shape of OnPro's backbone."""

    pooling: Literal["window", "global"] = Field(
        "global", description="average over fixed 4x4 windows of the last map, or over the whole map"
    )


class OnProConfig(feedback.FeedbackConfig, ContrastiveConfig):
    """Options of OnPro; the defaults are those of CIFAR-100 and Tiny-ImageNet."""

    name: Literal["onpro"] = "onpro"
    network: OnProNetworkConfig = OnProNetworkConfig()
    augment: TransformLayersConfig | None = TransformLayersConfig()
    prototype_temperature: float = Field(0.5, gt=0, description="tau of OPE, by which cosines are divided")


@dataclass(frozen=True)
class Views:
    """What the contrastive losses see, whose augmented views cross-entropy sees, and the prototypes' images."""

    arrived: Tensor  # (B,) labels of the stream
    stream: Rotated  # its first B images are the stream itself
    images: Tensor  # (N, 3, H, W) float, un-augmented: the stream in the first task, later the memory batch, mixed
    targets: Targets
    single: Tensor  # (N,) one label for each of ``images``, mixed or not
    memory: Rotated | None  # of ``images``; None in the first task
    # The prototypes' images, uint8 from memory, and labels: drawn by each peer in the first task; None: nothing stored.
    replayed: Callable[[torch.Generator], tuple[Tensor, Tensor]] | None


@methods.register("onpro")
class OnPro(ContrastiveMethod):
    """Online prototype learning."""

    config_class = OnProConfig
    config: OnProConfig
    needs_boundaries = True
    reservoir = "batched"
    mu: Tensor  # (num_classes, P): prototypes of the latest batch from memory; zero where a class was not in it

    def __init__(self, config: OnProConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = augmentation(TransformLayers, config.augment)
        self.register_buffer("mu", torch.zeros(num_classes, config.projection_width))

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """After the first task: the memory batch, the class order and, but for a task's first batch, the base part.

        In the first task every peer draws a batch from memory for itself, so only its size is decided here.
        """
        K = self.config.memory_batch
        rows = {"filled": torch.tensor([len(memory)])}
        if task.index == 0:
            self.check_images(len(labels))
            return Plan(rows, path=("first task", min(len(memory), K)))
        rows["order"] = torch.tensor(list(dict.fromkeys([*task.seen, *range(self.num_classes)])))
        count = min(K, PER_CLASS * len(task.seen), len(memory))
        self.check_images(count)
        replay = rows["replay"] = memory.sample(count, generator)
        if task.step == 0:
            return Plan(rows, path=("later", "as drawn"))
        return Plan(rows | feedback.base_rows(replay, self.config.base_rate, generator), path=("later", "mixed"))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The rotated images in both views; the feedback, too, is shared by all peers."""
        rows, x = plan.rows, self.prepare(stream.images)
        rotated = self.rotate(x, stream.labels, generator)
        filled = torch.arange(len(memory.images), device=x.device) < rows["filled"]
        if plan.path[0] == "first task":
            count = plan.path[1]
            assert isinstance(count, int)
            own = (lambda random: memory.gather(feedback.pick_distinct(filled, count, random))) if count else None
            return Views(stream.labels, rotated, x, Targets(stream.labels), stream.labels, None, own)

        held = memory.device_labels.where(filled, -1)
        pairs, targets, scalars, single = feedback.mixed_batch(self.config, rows, self.mu, held, generator)
        first, second = (self.prepare(memory.images[part]) for part in (pairs.first, pairs.second))
        m = torch.lerp(first, second, pairs.mix[:, None, None, None])
        mixed, replayed = self.rotate(m, scalars, generator), memory.gather(rows["replay"])
        return Views(stream.labels, rotated, m, targets, single, mixed, lambda _: replayed)

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass for the contrastive losses, one for cross-entropy, one for the memory's prototypes."""
        blocks = [views.stream] if views.memory is None else [views.stream, views.memory]
        z, contrastive = self.contrast(peer, blocks, generator)

        def view() -> Tensor:
            return self.augment(views.images, generator)

        # BatchNorm sees these two passes in the published order, which the first task has the other way round.
        if views.memory is None:
            seen, (out, tap) = self._seen(peer, views, generator), peer.look(view(), views.targets, view)
        else:
            (out, tap), seen = peer.look(view(), views.targets, view), self._seen(peer, views, generator)

        z1, z2 = (half[: len(views.arrived)] for half in z[0].chunk(2))  # not rotated
        ce = F.cross_entropy(out.logits.float(), views.targets.soft(self.num_classes))
        terms = {"ce": ce, **contrastive, "ope_new": self._equilibrium(z1, z2, views.arrived)[0]}
        if seen is not None:
            terms["ope_seen"] = seen[0]
        return Losses(terms, tap, carry=None if seen is None else seen[1])

    def _seen(self, peer: Peer, views: Views, generator: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """The pass on images from memory: OPE and mu. None in the first batch of a run, when nothing is stored."""
        if views.replayed is None:
            return None
        drawn, labels = views.replayed(generator)
        images = self.prepare(drawn)
        z1, z2 = peer.network(torch.cat([images, self.augment(images, generator)])).projection.chunk(2)
        return self._equilibrium(z1, z2, labels)

    def _equilibrium(self, z1: Tensor, z2: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """OPE of the projections of two views, and mu."""
        return equilibrium(z1, z2, labels, self.num_classes, self.config.prototype_temperature, EPSILON)

    def commit(self, carries: list[Tensor | None]) -> None:
        """The last peer's prototypes lead the next feedback."""
        if carries[-1] is not None:
            self.mu.copy_(carries[-1])
