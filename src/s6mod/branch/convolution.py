"""The depthwise convolution that makes X^ from X: every channel mixes neighbouring positions of the map, then a silu.

Positions are row-major and come before channels, (B, L, d), as everywhere in the branch.
"""

from torch import Tensor
from torch.nn import functional as F

from s6mod.kernels import kernels_for


def convolve_silu(X: Tensor, weight: Tensor, bias: Tensor, map_size: tuple[int, int]) -> Tensor:
    """silu(X * weight + bias) with zeros around the map: (B, L, d) -> (B, L, d), contiguous.

    ``weight`` is (d, 1, k, k) with an odd k, ``bias`` (d,), and L = H W. On a GPU it is one kernel of
    ``convolution_triton`` forwards, and one and a sum backwards, unless ``weight`` is wider than 3 x 3 or not float32.
    """
    kernels = kernels_for(X, "s6mod.branch.convolution_triton")
    suited = kernels is not None and kernels.suits(X, weight, bias, map_size)
    X_hat: Tensor = (kernels.convolve_silu if suited else plain_convolve_silu)(X, weight, bias, map_size)
    return X_hat


def plain_convolve_silu(X: Tensor, weight: Tensor, bias: Tensor, map_size: tuple[int, int]) -> Tensor:
    """``convolve_silu`` in PyTorch, for any device and floating type."""
    maps = X.mT.unflatten(2, map_size)  # (B, d, H, W)
    mixed = F.conv2d(maps, weight, bias, padding=weight.shape[-1] // 2, groups=len(weight))
    return F.silu(mixed).flatten(2).mT.contiguous()
