"""Sixteen-fold rotation (R16): every image in sixteen fixed variants, each a pseudo-class of its own.

Deterministic; a method augments the variants afterwards, each with its own draws.
"""

import torch
from torch import Tensor

from s6mod.errors import InputError

VARIANTS = 16


def rotate16(x: Tensor) -> Tensor:
    """(n, C, H, H) -> (16 n, C, H, H) in blocks of n; the first block is ``x`` itself.

    Four inner variants (as it is; left half turned by 180 degrees in place; both halves; right half), and these
    four as a whole turned counter-clockwise by 0, then 180, then 90, then 270 degrees.
    """
    if x.dim() != 4 or x.shape[2] != x.shape[3] or x.shape[3] % 2:
        raise InputError(f"expected square images of even side, (n, C, H, H), got {tuple(x.shape)}; resize them")
    left, right = x.chunk(2, dim=3)
    turned_left, turned_right = left.rot90(2, (2, 3)), right.rot90(2, (2, 3))
    halves = [(left, right), (turned_left, right), (turned_left, turned_right), (left, turned_right)]
    inner = torch.cat([torch.cat(pair, dim=3) for pair in halves])  # (4 n, C, H, H)
    return torch.cat([inner.rot90(quarters, (2, 3)) for quarters in (0, 2, 1, 3)])


def rotate16_labels(y: Tensor, offset: int) -> Tensor:
    """Pseudo-labels of ``rotate16``'s rows: block b of ``y`` (n,) becomes ``y + b * offset``; (16 n,)."""
    blocks = torch.arange(VARIANTS, device=y.device, dtype=y.dtype) * offset
    return (blocks[:, None] + y).flatten()
