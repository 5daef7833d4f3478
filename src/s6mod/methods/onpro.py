"""OnPro: prototypes of stream and memory, each class held apart from the others, say which memory images are mixed.

With R16 the sixteen-fold rotation, A the augmentation, x the stream and b a batch from memory, the first task minimises

    L = CE(g(A x)) + L_n(x) + OPE(x) + OPE(b)

and every later one, with a memory batch m0 and m made of it by adaptive prototypical feedback (``feedback``),

    L = CE(g(A m)) + L_n(x) + L_uni(m) + OPE(x) + OPE(m0).

L_n and L_uni are those of ``contrastive`` on [R16 x ; A R16 x] and [R16 m ; A R16 m]. OPE, the online prototype
equilibrium, compares [x ; A x] and [m0 ; A m0]. Three passes update the BatchNorm statistics: all contrastive images;
then, in the first task, the prototypes' images and what cross-entropy sees, later these two the other way round. In a
task's first batch m is m0, since the prototypes are still those of the task before.

The network knows classes by their labels. Where their order matters (which class of a pair is the first, what number
stands for a mixed label) it is that of first appearance in the stream. The table ``ncm`` compares features, as in every
method; in the published code of OnPro it compares logits.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import TransformLayers, TransformLayersConfig
from s6mod.branch.base import Tap, Targets
from s6mod.branch.precision import full_precision
from s6mod.memory import ReplayMemory
from s6mod.methods import feedback
from s6mod.methods.base import Batch, Chain, Losses, Peer, Plan, Task, methods
from s6mod.methods.contrastive import ContrastiveConfig, ContrastiveMethod, Rotated, new_loss, uniform_loss, unit
from s6mod.networks import NetworkConfig
from s6mod.networks.projection import ProjectedOutput


class OnProNetworkConfig(NetworkConfig):
    """Shape of OnPro's backbone."""

    pooling: Literal["window", "global"] = Field(
        "global", description="average over fixed 4x4 windows of the last map, or over the whole map"
    )


class OnProConfig(ContrastiveConfig):
    """Options of OnPro; the defaults are those of CIFAR-100 and Tiny-ImageNet."""

    name: Literal["onpro"] = "onpro"
    network: OnProNetworkConfig = OnProNetworkConfig()
    augment: TransformLayersConfig = TransformLayersConfig()
    per_class: int = Field(
        7, ge=1, description="images replayed after the first task, at most this many per class seen"
    )
    prototype_temperature: float = Field(0.5, gt=0, description="tau of OPE, by which cosines are divided")
    base_rate: float = Field(
        0.9, ge=0, le=1, description="share of the memory batch that is mixed within itself; the rest comes in pairs"
    )
    mixup_probability: float = Field(
        0.2, ge=0, le=1, description="p: a pair of classes is mixed with probability p, an image of the base part p^2"
    )
    base_mix: float = Field(0.6, ge=0, le=1, description="lambda of the base part is uniform from 0 to this")
    pair_beta: float = Field(0.4, gt=0, description="lambda of the pair part is drawn from Beta(a, a) with this a")
    truncate_mixed_labels: bool = Field(
        True,
        description="class of a mixed image in the chain of CCL-DC: the one whose place in the class order is the "
        "mixture of the two places, truncated, as in the published results; or that of the larger share",
    )


@dataclass(frozen=True)
class Views:
    """What the contrastive losses see, whose augmented views cross-entropy sees, and the prototypes' images."""

    arrived: Tensor  # (B,) labels of the stream
    stream: Rotated  # its first B images are the stream itself
    images: Tensor  # (N, 3, H, W) float, un-augmented: the stream in the first task, later the memory batch, mixed
    targets: Targets
    single: Tensor  # (N,) one label for each of ``images``, mixed or not
    memory: Rotated | None = None  # of ``images``; None in the first task
    replayed: tuple[Tensor, Tensor] | None = None  # memory batch before mixing, and labels; None in the first task
    own: tuple[Tensor, int] | None = None  # first task: (M,) bool, rows of memory in use; how many a peer draws


@methods.register("onpro")
class OnPro(ContrastiveMethod):
    """Online prototype learning."""

    config_class = OnProConfig
    config: OnProConfig
    needs_boundaries = True
    reservoir = "batched"
    chain = Chain(own=1.0, views=0.25, kd=1.0)
    mu: Tensor  # (num_classes, P): prototypes of the latest batch from memory; zero where a class was not in it

    def __init__(self, config: OnProConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = TransformLayers(config.augment)
        self.register_buffer("mu", torch.zeros(num_classes, config.projection_width))

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """After the first task: the memory batch, the class order and, but for a task's first batch, the base part.

        In the first task every peer draws a batch from memory for itself, so only its size is decided here.
        """
        K = self.config.memory_batch
        rows = {"filled": torch.tensor([len(memory)])}
        if task.index == 0:
            return Plan(rows, path=("first task", min(len(memory), K)))
        rows["order"] = torch.tensor(list(dict.fromkeys([*task.seen, *range(self.num_classes)])))
        replay = rows["replay"] = memory.sample(min(K, self.config.per_class * len(task.seen)), generator)
        if task.step == 0:
            return Plan(rows, path=("later", "as drawn"))
        count = int(len(replay) * self.config.base_rate)
        rows["base"] = replay[torch.randperm(len(replay), generator=generator)[:count]]
        rows["partners"] = rows["base"][torch.randperm(count, generator=generator)]
        return Plan(rows, path=("later", "mixed"))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The rotated images in both views; the feedback, too, is shared by all peers."""
        rows, x = plan.rows, self.prepare(stream.images)
        rotated = self.rotate(x, stream.labels, generator)
        filled = torch.arange(len(memory.images), device=x.device) < rows["filled"]
        if plan.path[0] == "first task":
            count = plan.path[1]
            assert isinstance(count, int)
            own = (filled, count) if count else None
            return Views(stream.labels, rotated, x, Targets(stream.labels), stream.labels, own=own)

        position = rows["order"].argsort()
        first, second, mix = self._feedback(rows, position, memory.device_labels.where(filled, -1), generator)
        (x_a, y_a), (x_b, y_b), (m0, y0) = map(memory.gather, (first, second, rows["replay"]))
        m = torch.lerp(self.prepare(x_a), self.prepare(x_b), mix[:, None, None, None])
        scalars = feedback.scalar_labels(position[y_a], position[y_b], mix)
        if self.config.truncate_mixed_labels:
            single = rows["order"][scalars.long()]
        else:
            single = torch.where(mix > 0.5, y_b, y_a)
        mixed = self.rotate(m, scalars, generator)
        replayed = self.prepare(m0), y0
        return Views(stream.labels, rotated, m, Targets(y_a, y_b, mix), single, mixed, replayed)

    def _feedback(
        self, rows: dict[str, Tensor], position: Tensor, labels: Tensor, generator: torch.Generator
    ) -> feedback.Mixture:
        """[base part ; pair part], or the memory batch as it is."""
        replay = rows["replay"]
        if "base" not in rows:
            return feedback.Mixture(replay, replay, torch.zeros(replay.shape, device=replay.device))
        config, p = self.config, self.config.mixup_probability
        base = feedback.base_part(rows["base"], rows["partners"], p, config.base_mix, generator)
        count = len(replay) - len(rows["base"])
        pairs = feedback.pair_part(self.mu, position, labels, count, p, config.pair_beta, generator)
        return feedback.Mixture(*map(torch.cat, zip(base, pairs, strict=True)))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass for the contrastive losses, one for cross-entropy, one for the memory's prototypes."""
        tau, epsilon = self.config.temperature, self.config.epsilon
        blocks = [views.stream] if views.memory is None else [views.stream, views.memory]
        scale = self.config.first_scale if views.memory is None else self.config.scale
        z, S = self.contrast(peer, blocks, scale, generator)

        def classify() -> ProjectedOutput:
            out: ProjectedOutput = peer.network(self.augment(views.images, generator))
            return out

        # BatchNorm sees these two passes in the published order, which the first task has the other way round.
        if views.memory is None:
            seen, out = self._prototypes(peer, views, memory, generator), classify()
        else:
            out, seen = classify(), self._prototypes(peer, views, memory, generator)

        B = len(views.arrived)
        z1, z2 = (half[:B] for half in z[0].chunk(2))  # not rotated
        terms = {
            "ce": F.cross_entropy(out.logits.float(), views.targets.soft(self.num_classes)),
            "new": new_loss(S[0], views.stream.labels, tau, epsilon),
            "ope_new": self._equilibrium(z1, z2, views.arrived)[0],
        }
        if views.memory is not None:
            terms["uniform"] = uniform_loss(S[1], views.memory.labels, tau, epsilon)
        if seen is not None:
            terms["ope_seen"] = seen[0]
        tap = Tap(out.feature_map, out.logits, views.targets, lambda: classify().feature_map)
        return Losses(terms, tap, carry=None if seen is None else seen[1])

    def _prototypes(
        self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator
    ) -> tuple[Tensor, Tensor] | None:
        """The pass on images from memory: OPE and mu. None in the first batch of a run, when nothing is stored."""
        if views.replayed is not None:
            images, labels = views.replayed
        elif views.own is not None:
            drawn, labels = memory.gather(feedback.pick_distinct(*views.own, generator))
            images = self.prepare(drawn)
        else:
            return None
        z1, z2 = peer.network(torch.cat([images, self.augment(images, generator)])).projection.chunk(2)
        return self._equilibrium(z1, z2, labels)

    def _equilibrium(self, z1: Tensor, z2: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """OPE of the projections of two views, and mu: their prototypes as they are, averaged over the views."""
        tau, epsilon = self.config.prototype_temperature, self.config.epsilon
        (p1, present), (p2, _) = (class_means(unit(z, epsilon), labels, self.num_classes) for z in (z1, z2))
        return equilibrium_loss(p1, p2, present, tau, epsilon), (p1 + p2).detach() / 2

    def commit(self, carries: list[Tensor | None]) -> None:
        """The last peer's prototypes lead the next feedback."""
        if carries[-1] is not None:
            self.mu.copy_(carries[-1])

    def chain_batch(self, views: Views) -> tuple[Tensor, Tensor]:
        """The stream, and after the first task the mixed memory with one label for each image."""
        if views.memory is None:
            return views.images, views.single
        stream = views.stream.images[: len(views.arrived)]
        return torch.cat([stream, views.images]), torch.cat([views.arrived, views.single])


@full_precision
def class_means(z: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The mean of the rows of ``z`` (N, P) of each class, (num_classes, P) and zero if it has none; and if it has any.

    One matrix product, whose sums have the same order every time.
    """
    member = (labels == torch.arange(num_classes, device=labels.device)[:, None]).to(z.dtype)  # (num_classes, N)
    count = member.sum(1)
    return member @ z / count.clamp(min=1)[:, None], count > 0


@full_precision
def equilibrium_loss(p1: Tensor, p2: Tensor, present: Tensor, temperature: float, epsilon: float) -> Tensor:
    """OPE: mean over the 2 k prototypes of -log softmax(cosine / temperature), taken at the same class's other view.

    ``p1`` and ``p2`` (C, P) are the prototypes of two views, of which the k classes where ``present`` (C,) is true
    count. A prototype is not compared with itself, so that one class alone gives 0.
    """
    p = unit(torch.cat([p1, p2]), epsilon)
    present = present.repeat(2)
    cosine = p @ p.T / temperature  # (2 C, 2 C)
    itself = torch.eye(len(p), dtype=torch.bool, device=p.device)
    everything = cosine.masked_fill(itself | ~present, -torch.inf).logsumexp(1)
    other_view = cosine.diagonal(len(p1)).repeat(2)
    return ((everything - other_view) * present).sum() / present.sum()
