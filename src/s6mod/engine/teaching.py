"""Teaching: the averaged copies that a teacher teaches by, one for each peer's network."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from s6mod.branch.base import Tap
from s6mod.engine.average import Average
from s6mod.methods.base import Peer
from s6mod.networks import Network
from s6mod.teacher import Teacher


class Teaching(Average[Network]):
    """Copies whose parameters follow the networks at the teacher's rate; their buffers are their own."""

    def __init__(self, teacher: Teacher, peers: Sequence[Peer]) -> None:
        super().__init__([peer.network for peer in peers], 1 - teacher.config.rate, parameters_alone=True)
        self.teacher = teacher

    def losses(self, number: int, tap: Tap) -> dict[str, Tensor]:
        """What the network of that number learns from its copy."""
        return self.teacher.losses(self.latest[number], self.modules[number], tap)

    @torch.no_grad()
    def mean(self, peers: Sequence[Peer]) -> list[Peer]:
        """What predicts: the mean of each network's parameters and its copy's, with the network's buffers."""
        means = [Peer(copy.deepcopy(peer.network), peer.branch) for peer in peers]
        for peer, other in zip(means, self.modules, strict=True):
            torch._foreach_lerp_(list(peer.network.parameters()), list(other.parameters()), 0.5)
        return means
