"""Random resized crop with rejection: draw boxes, then cut, mirror and resize in one go.

The rejection is part of the distribution: a candidate that does not fit is drawn again, never clamped. The resize is
bilinear with aligned corners and without antialiasing, and never looks beyond the border of the box.
"""

import math
from typing import Annotated

import torch
from pydantic import AfterValidator
from torch import Tensor
from torch.nn import functional as F

RATIO = (3 / 4, 4 / 3)  # height / width of a candidate, log-uniform
ATTEMPTS = 10  # candidates for each image


def _inside(scale: tuple[float, float]) -> tuple[float, float]:
    if not 0 < scale[0] <= scale[1]:
        raise ValueError(f"expected 0 < lower <= upper, got {scale}; change the bounds")
    if scale[1] > 1:
        raise ValueError(f"expected a crop of at most the whole image, got {scale}; keep the upper bound at 1 or below")
    return scale


Areas = Annotated[tuple[float, float], AfterValidator(_inside)]  # areas of a crop as fractions of the image


def draw_boxes(
    candidates: Tensor, corner: Tensor, size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """Crop boxes (B, 4) int64: top, left, height, width; from uniform numbers (2, B, attempts) and (2, B).

    Per image, all candidates have an area fraction U(scale) and a log-uniform aspect (height / width) in ``ratio``,
    sides rounded to whole pixels; the first that is strictly smaller than the image in both sides wins. If none is,
    the box is that of ``last_resort``. The corner is uniform over all whole-pixel places.
    """
    H, W = size
    area = (scale[0] + (scale[1] - scale[0]) * candidates[0]) * (H * W)
    aspect = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * candidates[1])
    height = torch.round(torch.sqrt(area * aspect))  # (B, attempts)
    width = torch.round(torch.sqrt(area / aspect))
    fits = (height >= 1) & (height < H) & (width >= 1) & (width < W)

    # The box of last resort is one more candidate, which always fits.
    last_height, last_width = last_resort(size, ratio)
    height = F.pad(height, (0, 1), value=last_height)
    width = F.pad(width, (0, 1), value=last_width)
    first = F.pad(fits.float(), (0, 1), value=1.0).argmax(1, keepdim=True)  # of equal values, argmax takes the first
    height, width = height.gather(1, first)[:, 0], width.gather(1, first)[:, 0]  # (B,)

    left, top = torch.floor(corner[0] * (W + 1 - width)), torch.floor(corner[1] * (H + 1 - height))
    return torch.stack([top, left, height, width], dim=1).long()


def last_resort(size: tuple[int, int], ratio: tuple[float, float]) -> tuple[int, int]:
    """Height and width of the box where no candidate fits: the widest one of the lowest aspect."""
    H, W = size
    return max(1, min(H, round(W * ratio[0]))), max(1, min(W, round(H / ratio[0])))


def crop_resize(x: Tensor, box: Tensor, flip: Tensor) -> Tensor:
    """What each image shows in its ``box`` (B, 4), stretched to full size and mirrored where ``flip`` (B,)."""
    B, C, H, W = x.shape
    top, left, height, width = box.unbind(1)

    # Rows are picked whole, which on a CPU is several times faster than picking their pixels one by one.
    low, high, weight = _neighbours(top, height, H)  # (B, H)
    first_rows = torch.arange(0, B * C * H, H, device=x.device).view(B, C, 1)
    all_rows = x.reshape(-1, W)
    above, below = (
        all_rows.index_select(0, (first_rows + row[:, None]).flatten()).view(x.shape) for row in (low, high)
    )
    x = above.lerp_(below, weight[:, None, :, None])

    # Mirroring is picking the columns in reverse.
    low, high, weight = (torch.where(flip[:, None], t.flip(1), t) for t in _neighbours(left, width, W))  # (B, W)
    before, after = (x.gather(3, column[:, None, None].expand(x.shape)) for column in (low, high))
    return before.lerp_(after, weight[:, None, None])


def _neighbours(start: Tensor, length: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """For ``size`` points spread evenly from the first to the last pixel of each interval: the pixel at or before
    each point, the pixel after it (inside the interval), and the weight of the latter; (B, size) each.
    """
    step = (length - 1).float() / max(size - 1, 1)  # (B,)
    position = step[:, None] * torch.arange(size, device=start.device)
    low = position.floor()
    weight = position - low
    before = start[:, None] + low.long()
    after = torch.minimum(before + 1, (start + length - 1)[:, None])
    return before, after, weight
