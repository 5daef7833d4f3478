"""The depthwise 3x3 convolution: every channel is filtered on its own.

cuDNN compiles its kernels for such a convolution anew for each batch size that it meets, which takes longer than many
steps do, so on a GPU it runs as kernels of our own. ``plain_depthwise`` says what they compute.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.kernels import kernels_for


class Depthwise(nn.Conv2d):
    """A 3x3 convolution of each channel with zeros around the map, of stride 1 or 2 and without bias."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__(channels, channels, 3, stride, 1, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, channels, H/stride, W/stride), rounded up."""
        kernels = kernels_for(x, "s6mod.networks.depthwise_triton")
        if kernels is None or not kernels.suits(x):
            return plain_depthwise(x, self.weight, self.stride[0])
        y: Tensor = kernels.depthwise(x, self.weight, self.stride[0])
        return y


def plain_depthwise(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """What ``Depthwise`` computes, with ``weight`` of (channels, 1, 3, 3)."""
    return F.conv2d(x, weight, None, stride, padding=1, groups=x.shape[1])
