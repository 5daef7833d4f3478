"""Colour operations on RGB images in [0, 1]: greyscale, and jitter of brightness, contrast, saturation and hue.

The first three of the jitter are one blend with different bases (black, the mean of the grey image, the grey image);
hue turns the colour circle of HSV. The order of the four is shared by the whole batch, the factors are per image.
Temporaries are updated in place where that spares memory, which is most of the time on a CPU; inputs never are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # columns of the factors, entries of the order
REACH = (0.4, 0.4, 0.4, 0.1)  # of each factor, uniform in 1 -+ this, but for hue: in -+ this, in turns of the circle


def grey(x: Tensor) -> Tensor:
    """Luminance of RGB images, (B, 3, H, W) -> (B, 1, H, W)."""
    red, green, blue = x.chunk(3, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def turn_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Images with their hue turned by ``turns`` (B, 1, 1, 1) of the colour circle; value and chroma stay."""
    red, green, blue = x.chunk(3, dim=1)  # (B, 1, H, W)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)

    # Hue in sixths of the circle, counted from the largest channel: red 0, green 2, blue 4. Where all are equal it
    # comes out as 0 and does not matter. Weights of exactly 0 or 1 make lerp a selection without a branch per pixel.
    unit = chroma.clamp_min(torch.finfo(x.dtype).tiny)
    hue = (red - green).div_(unit).add_(4)
    hue.lerp_((blue - red).div_(unit).add_(2), (green == value).to(x.dtype))
    hue.lerp_((green - blue).div_(unit), (red == value).to(x.dtype))

    # A channel is `value` up to one sixth away from its own hue and falls by `chroma` within the next sixth.
    own = torch.arange(0, 6, 2, device=x.device)[:, None, None]  # red, green, blue
    away = hue.add_(6 * turns) - own  # (B, 3, H, W)
    away.sub_(away.div(6).round_().mul_(6)).abs_()  # the short way round, 0..3
    return away.sub_(1).clamp_(0, 1).mul_(-chroma).add_(value)


def jitter(x: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """The four operations with ``factors`` (B, 4), one after the other as ``order`` (4,) says.

    Where the order can be read for nothing each operation is simply called; elsewhere it is selected on the device.
    """
    if order.device.type == "cpu":
        return jitter_known_order(x, factors, order.tolist())
    return jitter_selected(x, factors, order)


def jitter_known_order(x: Tensor, factors: Tensor, order: Sequence[int]) -> Tensor:
    """Jitter with the order known to the host: the definition."""
    factor = factors[:, :, None, None, None].unbind(1)  # four of (B, 1, 1, 1)
    for operation in order:
        if operation == BRIGHTNESS:
            x = (factor[BRIGHTNESS] * x).clamp_(0, 1)
        elif operation == CONTRAST:
            x = blend(x, grey(x).mean((1, 2, 3), keepdim=True), factor[CONTRAST])
        elif operation == SATURATION:
            x = blend(x, grey(x), factor[SATURATION])
        else:
            x = turn_hue(x, factor[HUE])
    return x


def jitter_selected(x: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """Jitter with the order known to the device alone: every step computes all operations and keeps one."""
    turns = factors[:, HUE, None, None, None]  # (B, 1, 1, 1)
    for operation in order.unbind():
        factor = factors.index_select(1, operation[None])[:, :, None, None]  # (B, 1, 1, 1)
        base = grey(x)
        base = torch.where(operation == CONTRAST, base.mean((1, 2, 3), keepdim=True), base)
        base = torch.where(operation == BRIGHTNESS, 0.0, base)
        x = torch.where(operation == HUE, turn_hue(x, turns), blend(x, base, factor))
    return x


def blend(x: Tensor, base: Tensor, factor: Tensor) -> Tensor:
    """``x`` away from (factor > 1) or towards (factor < 1) ``base``; factor (B, 1, 1, 1)."""
    return (factor * x).add_((1 - factor) * base).clamp_(0, 1)
