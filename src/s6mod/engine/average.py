"""Averaged weights: copies of modules that follow them, an exponential average over the steps.

The update is part of a step, so it is captured and replayed with it. Whether an average predicts is decided elsewhere.
"""

import copy
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from s6mod.methods.base import Peer

M = TypeVar("M", bound=nn.Module)


class Average(Generic[M]):
    """Copies of ``modules``: after step t, from 0 on, ``w_avg += r (w - w_avg)``, buffers included.

    The rate r is ``1 - decay``, but 9 / (10 + t) while that is more: the average is first over a few steps and soon
    forgets how the networks began. What is no floating-point number, such as a count of batches, is copied.
    ``modules`` holds the copies, in order. With ``parameters_alone`` the rate is ``1 - decay`` from the first step on,
    and buffers are left to whoever runs the copies.
    """

    def __init__(self, modules: Sequence[M], decay: float, parameters_alone: bool = False) -> None:
        self.decay = decay
        self.parameters_alone = parameters_alone
        self.latest = list(modules)
        self.modules = [copy.deepcopy(module).requires_grad_(False) for module in modules]
        self.updates = torch.zeros((), device=_tensors(modules)[0].device)  # t, where the steps are

    @torch.no_grad()
    def update(self) -> None:
        """On the device, after a step: a few fused operations for all numbers, and one for what is copied."""
        rate = (9 / (10 + self.updates)).clamp(
            min=1 - self.decay, max=1 - self.decay if self.parameters_alone else None
        )
        self.updates += 1
        copies, latest = (self._moved(modules) for modules in (self.modules, self.latest))
        pairs = list(zip(copies, latest, strict=True))
        moving = [pair for pair in pairs if pair[0].is_floating_point()]
        copied = [pair for pair in pairs if not pair[0].is_floating_point()]
        apart = torch._foreach_sub([latest for _, latest in moving], [mean for mean, _ in moving])
        torch._foreach_mul_(apart, rate)
        torch._foreach_add_([mean for mean, _ in moving], apart)
        if copied:
            torch._foreach_copy_([mean for mean, _ in copied], [latest for _, latest in copied])

    def _moved(self, modules: Sequence[nn.Module]) -> list[Tensor]:
        if self.parameters_alone:
            return [parameter for module in modules for parameter in module.parameters()]
        return _tensors(modules)

    def state_tree(self) -> dict[str, Any]:
        """The copies by their numbers, and how often they were updated."""
        copies = {str(number): module.state_dict() for number, module in enumerate(self.modules)}
        return {"updates": self.updates, **copies}

    def load_state_tree(self, tree: dict[str, Any]) -> None:
        """Go on from what ``state_tree`` gave."""
        updates = tree["updates"]
        if updates.dim() or not 0 <= updates.item() < float("inf"):
            raise ValueError(f"{updates} updates of averaged weights")
        self.updates.copy_(updates)
        for number, module in enumerate(self.modules):
            module.load_state_dict(tree[str(number)])

    @property
    def nbytes(self) -> int:
        """Bytes that the copies take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.updates, *_tensors(self.modules)))


def average_of(peers: Sequence[Peer], decay: float) -> Average[Peer]:
    """The average of everything that predicts: each peer's network and branch. Its teacher takes no part."""
    return Average([Peer(peer.network, peer.branch) for peer in peers], decay)


def _tensors(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
