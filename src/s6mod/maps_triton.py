"""What the Triton kernels for maps have in common: a map (B, C, H, W) whose channels lie side by side in memory is a
table of B H W rows and C columns.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor


def suits(x: Tensor) -> bool:
    """Whether kernels exist for ``x``: channels last, and a type whose sums fit float32."""
    return x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.is_contiguous(
        memory_format=torch.channels_last
    )


def split_rows(rows: int, block_rows: int, programs: int) -> tuple[int, int]:
    """How many programs, of ``programs`` at the most, share the rows, and how many rows each has."""
    blocks = triton.cdiv(rows, block_rows)
    chunk = max(triton.cdiv(blocks, max(programs, 1)), 1) * block_rows
    return triton.cdiv(rows, chunk), chunk


def evenly_spaced(x: Tensor) -> tuple[Tensor, int]:
    """The table (B, L, C), copied unless its B L rows are evenly spaced in memory, and how far apart they are."""
    _, steps, columns = x.shape
    between_samples, between_rows, between_columns = x.stride()
    if between_columns == 1 and between_rows >= columns and between_samples == steps * between_rows:
        return x, between_rows
    return x.contiguous(), columns


@triton.jit
def position(r, rows, H: tl.constexpr, W: tl.constexpr):
    """Image, line and column of a row; beyond the last row, a line far outside the map."""
    return (r // (H * W)).to(tl.int64), tl.where(r < rows, r // W % H, -9), r % W


@triton.jit
def places(image, i, j, c, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """Where the channels of positions lie in memory, and whether they are inside the map."""
    inside = (i >= 0) & (i < H) & (j >= 0) & (j < W)
    at = ((image * H + i) * W + j) * C
    return at[:, None] + c[None, :], inside[:, None] & (c < C)[None, :]
