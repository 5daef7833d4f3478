"""Batch normalisation together with what follows it in a residual network: an added shortcut and a ReLU.

With many images a step is bound by the memory that these operations move, not by the convolutions between them, so on
a GPU they run as few kernels of our own. ``plain_norm`` says what they compute. Several views can share a pass without
sharing statistics: see ``apart``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from s6mod.errors import InputError
from s6mod.kernels import kernels_for


class BatchNorm(nn.BatchNorm2d):
    """relu(batch_norm(x) + shortcut); the ReLU can be left out, the shortcut need not be given."""

    momentum: float
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, relu: bool = True) -> None:
        super().__init__(channels)
        self.relu = relu
        self.parts = 1  # equal parts of a batch that are normalised apart; see ``apart``

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """(B, channels, H, W) -> the same shape."""
        assert x.shape[0] % self.parts == 0, f"{x.shape[0]} images are no {self.parts} equal parts"
        if self.training and x.numel() == self.parts * x.shape[1]:
            raise InputError(
                "expected more than one value to normalise a channel by, got one image whose map has come down to 1x1; "
                "give batches of two or images of at least 16x16 pixels"
            )
        # In eval mode for predictions alone: networks that a step only looks at keep the bits that they have had.
        kernels = None
        if self.training or (torch.is_inference_mode_enabled() and x.dtype == torch.bfloat16):
            kernels = kernels_for(x, "s6mod.networks.norm_triton")
        if kernels is None or not kernels.suits(x):
            return plain_norm(self, x, shortcut)
        normalised: Tensor = (kernels.norm if self.training else kernels.settled_norm)(self, x, shortcut)
        return normalised


def plain_norm(norm: BatchNorm, x: Tensor, shortcut: Tensor | None) -> Tensor:
    """What ``norm`` computes, one operation after the other."""
    if norm.parts == 1:
        y = nn.BatchNorm2d.forward(norm, x)
    else:
        y = torch.cat([nn.BatchNorm2d.forward(norm, part) for part in x.chunk(norm.parts)])
    if shortcut is not None:
        y = y + shortcut
    return F.relu(y) if norm.relu else y


@contextmanager
def apart(network: nn.Module, parts: int) -> Iterator[None]:
    """For a while, a batch for ``network`` is so many equal parts, one after the other, that share nothing but a pass.

    Each is normalised by its own statistics, and the moving averages take them in turn, as if each had come alone.
    """
    norms: list[BatchNorm] = []
    for module in network.modules():
        if isinstance(module, BatchNorm):
            norms.append(module)
        elif isinstance(module, _BatchNorm):
            raise InputError(
                f"expected s6mod.networks.norm.BatchNorm in a network that takes several views at once, got a "
                f"{type(module).__name__}; use that one, or set joint_views = False in the network's class"
            )
    for norm in norms:
        norm.parts = parts
    try:
        yield
    finally:
        for norm in norms:
            norm.parts = 1
