"""CCL-DC: two networks that learn by a method's loss and from each other, along a chain of ever harder views.

With x0 ... x3 the views of the chain, g_k the logits of view k, h_k those of the other network, each network minimises

    L = own * L_method + views * (CE(g_0) + CE(g_1) + CE(g_2) + CE(g_3)) + kd * L_KD
    L_KD = KL(h_1, g_0) + KL(h_2, g_1) + KL(h_3, g_2) + KL(h_3, g_3)

over all classes: a harder view, of which the teacher is less sure, teaches the easier one. A branch goes on seeing the
method's own tap. The pairs themselves are in ``pairs``.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import ChainConfig, DistillationChain
from s6mod.errors import ConfigError
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Method, Peer, Plan
from s6mod.networks import Output
from s6mod.precision import full_precision

PASSES = (3, 0, 1, 2)  # the order in which a network sees the views, and so BatchNorm's


OwnWeight = Annotated[float, Field(ge=0, description="of the method's own terms")]
ViewsWeight = Annotated[float, Field(ge=0, description="of the sum of the cross-entropies of the chain's four views")]
KDWeight = Annotated[float, Field(ge=0, description="of the distillation, the sum of its four terms")]


class CollaborationConfig(ChainConfig):
    """How two networks learn from each other; each pair gives the weights a default."""

    own_weight: OwnWeight
    views_weight: ViewsWeight
    kd_weight: KDWeight
    temperature: float = Field(4.0, gt=0, description="T, by which logits are divided in the distillation")


@dataclass(frozen=True)
class Views:
    """The method's own views, and the chain that both networks share."""

    own: Any
    chain: list[Tensor]  # x0, x1, x2, x3, each (N, 3, H, W)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class Passes:
    """What a network's passes leave for ``couple``."""

    own: Any  # what the method carries on
    logits: Tensor  # (4, N, num_classes): g_0, g_1, g_2, g_3


class CCLDC(Method):
    """Stands before a method among the bases of a pair: what it does not say is said by the method.

    A pair adds ``chain_batch``, and ``collaboration`` to the method's options.
    """

    num_peers = 2

    def __init_subclass__(cls) -> None:
        """Refuse what would not be a pair; the heads of both networks need no memory."""
        super().__init_subclass__()
        if refusal := _refusal(cls):
            raise ConfigError(refusal)
        cls.memory_free = cls.memory_free | {"net1", "net2"}

    def __init__(self, config: Any, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.make_chain = DistillationChain(config.collaboration, image_shape[1:])

    def chain_batch(self, views: Any) -> tuple[Tensor, Tensor]:
        """On the device: images and labels (N,) int64 that the chain starts from, of what the method drew.

        The images are un-augmented, uint8 or float in [0, 1].
        """
        raise NotImplementedError

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """What the method draws, and the chain."""
        own = super().draw(stream, plan, memory, generator)
        images, labels = self.chain_batch(own)
        return Views(own, self.make_chain(images, generator), labels)

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """The method's passes and terms, then a pass for each view of the chain.

        The passes of the other network may come before, between or after: only the order within a network matters.
        """
        own = super().losses(peer, views.own, memory, generator)
        logits = {k: peer.network(views.chain[k]).logits for k in PASSES}
        return Losses(own.terms, own.tap, Passes(own.carry, torch.stack([logits[k] for k in sorted(logits)]).float()))

    def couple(self, peers: list[Peer], views: Views, losses: list[Losses]) -> list[Losses]:
        """The whole loss of each network; the other one teaches it by the passes it learns from itself."""
        config = self.config.collaboration
        logits = [loss.carry.logits for loss in losses]
        own = super().couple(peers, views.own, [Losses(loss.terms, loss.tap, loss.carry.own) for loss in losses])
        return [
            Losses(
                {name: config.own_weight * term for name, term in loss.terms.items()}
                | {
                    "chain": config.views_weight * chain_cross_entropy(student, views.labels),
                    "kd": config.kd_weight * distillation(student, teacher, config.temperature),
                },
                loss.tap,
                loss.carry,
            )
            for loss, student, teacher in zip(own, logits, reversed(logits), strict=True)
        ]

    def scores(self, outputs: list[Output], reference: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """The method's tables, of both networks together, and the head of each network."""
        heads = {f"net{number}": out.logits.float() for number, out in enumerate(outputs, start=1)}
        return super().scores(outputs, reference) | heads


def _refusal(pair: type[CCLDC]) -> str | None:
    """Why a class is no pair, as a sentence; None if it is one."""
    name, mro = pair.__name__, pair.__mro__
    if not all(issubclass(base, CCLDC) for base in mro[: mro.index(CCLDC)]):
        bases = ", ".join(base.__name__ for base in pair.__bases__)
        return f"expected CCLDC before the method among the bases of {name}, got {bases}; change their order"
    if pair.chain_batch is CCLDC.chain_batch:
        return (
            f"expected {name} to say in chain_batch which images its chain starts from, got no chain_batch; write it, "
            "or use the method alone"
        )
    if pair.prepare is not Method.prepare:
        return (
            f"expected a method whose network takes pixels as floats in [0, 1] for {name}, got one that prepares them "
            "otherwise; let its network do so"
        )
    if "collaboration" not in pair.config_class.model_fields:
        return (
            f"expected the option collaboration in {pair.config_class.__name__} for {name}, got none; add it, with the "
            "weights of a CollaborationConfig"
        )
    return None


@full_precision
def chain_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over views of their mean cross-entropies; logits (4, N, num_classes), labels (N,)."""
    return len(logits) * F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


@full_precision
def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """L_KD of logits (4, N, num_classes): T^2 mean_n sum_c p_c (log p_c - log q_c), summed over views.

    q is the student's softmax at temperature T, p the teacher's of the next harder view (of the hardest: the same
    view), which is a constant.
    """
    harder = torch.cat([teacher[1:], teacher[-1:]]).detach()
    log_q, log_p = ((logits / temperature).log_softmax(2) for logits in (student, harder))
    return temperature**2 * F.kl_div(log_q, log_p, reduction="sum", log_target=True) / student.shape[1]
