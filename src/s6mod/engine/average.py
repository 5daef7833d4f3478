"""Averaged weights: copies of modules that follow them, an exponential average over the steps.

The update is part of a step, so it is captured and replayed with it. Whether an average predicts is decided elsewhere.
"""

import copy
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from s6mod.methods.base import Peer

M = TypeVar("M", bound=nn.Module)


class Average(Generic[M]):
    """Copies of ``modules``: after each step ``w_avg += (1 - decay) (w - w_avg)``, buffers included.

    What is no floating-point number, such as a count of batches, is copied. ``modules`` holds the copies, in order.
    """

    def __init__(self, modules: Sequence[M], decay: float) -> None:
        self.decay = decay
        self._latest = list(modules)
        self.modules = [copy.deepcopy(module).requires_grad_(False) for module in modules]

    @torch.no_grad()
    def update(self) -> None:
        """On the device, after a step: one fused operation for all numbers, and one for what is copied."""
        pairs = list(zip(_tensors(self.modules), _tensors(self._latest), strict=True))
        moving = [pair for pair in pairs if pair[0].is_floating_point()]
        copied = [pair for pair in pairs if not pair[0].is_floating_point()]
        torch._foreach_lerp_([mean for mean, _ in moving], [latest for _, latest in moving], 1 - self.decay)
        if copied:
            torch._foreach_copy_([mean for mean, _ in copied], [latest for _, latest in copied])

    @property
    def nbytes(self) -> int:
        """Bytes that the copies take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(self.modules))


def average_of(peers: Sequence[Peer], decay: float) -> Average[Peer]:
    """The average of everything that predicts: each peer's network and branch. Its teacher takes no part."""
    return Average([Peer(peer.network, peer.branch) for peer in peers], decay)


def _tensors(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
