"""Batch normalisation together with what follows it in a residual network: an added shortcut and a ReLU.

With many images a step is bound by the memory that these operations move, not by the convolutions between them, so on
a GPU they run as few kernels of our own. ``plain_norm`` says what they compute.
"""

from torch import Tensor, nn
from torch.nn import functional as F

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

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """(B, channels, H, W) -> the same shape."""
        if self.training and x.numel() == x.shape[1]:
            raise InputError(
                "expected more than one value to normalise a channel by, got one image whose map has come down to 1x1; "
                "give batches of two or images of at least 16x16 pixels"
            )
        kernels = kernels_for(x, "s6mod.networks.norm_triton") if self.training else None
        if kernels is None or not kernels.suits(x):
            return plain_norm(self, x, shortcut)
        normalised: Tensor = kernels.norm(self, x, shortcut)
        return normalised


def plain_norm(norm: BatchNorm, x: Tensor, shortcut: Tensor | None) -> Tensor:
    """What ``norm`` computes, one operation after the other."""
    y = nn.BatchNorm2d.forward(norm, x)
    if shortcut is not None:
        y = y + shortcut
    return F.relu(y) if norm.relu else y
