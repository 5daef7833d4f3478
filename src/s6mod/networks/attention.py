"""A map weighed place by place and channel by channel, by weights found at half its size.

To bring the weights to the map's size, squash them and multiply by them moves much memory in several operations, so
on a GPU it is one kernel of our own, and two backwards. ``plain_attend`` says what they compute.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.kernels import kernels_for


def attend(x: Tensor, weights: Tensor) -> Tensor:
    """(B, C, H, W) times the sigmoid of (B, C, H/2, W/2), rounded up, between whose places it is interpolated."""
    kernels = kernels_for(x, "s6mod.networks.attention_triton")
    if kernels is None or not kernels.suits(x, weights):
        return plain_attend(x, weights)
    y: Tensor = kernels.attend(x, weights)
    return y


def plain_attend(x: Tensor, weights: Tensor) -> Tensor:
    """What ``attend`` computes, one operation after the other."""
    with torch.autocast(x.device.type, enabled=False):  # which would interpolate in float32 and move twice as much
        # To the size of x rather than twice as large: the same for even sides, and right for odd ones.
        weights = F.interpolate(weights, size=x.shape[2:], mode="bilinear", align_corners=False)
        return x * torch.sigmoid(weights)
