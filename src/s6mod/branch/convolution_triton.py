"""``convolve_silu`` in one Triton kernel forwards and one backwards, in float32.

What is computed is defined by ``plain_convolve_silu`` in ``convolution``, which imports this module where there is
Triton. A program takes a few channels of a few rows, a row being a position of a sample. Backwards the gradients around
a position give that of X and, times X, those of the weights, which are summed over programs afterwards, always in the
same order, so that results are the same bits every time.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, assignment"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.maps_triton import evenly_spaced, places, position, split_rows

WIDEST = 3  # side of a kernel: each weight of a channel has a register, and so has its gradient
COLUMNS = 8  # that a program takes, at the most: the fewer, the more rows, over which it sums alone
TILE = 128  # numbers in a block: four to a thread of one warp, whose sums wait for no other
PROGRAMS = 1584  # that share the rows: twelve for each of an H200's processors, as many as find room


def suits(X: Tensor, weight: Tensor, bias: Tensor, map_size: tuple[int, int]) -> bool:
    """Whether kernels exist: all in float32, maps of that size, and a small square kernel for each channel."""
    batch, steps, d = X.shape
    side = weight.shape[-1]
    shapes = weight.shape == (d, 1, side, side) and bias.shape == (d,) and steps == map_size[0] * map_size[1]
    types = all(tensor.dtype == torch.float32 for tensor in (X, weight, bias))
    return shapes and types and batch > 0 and side % 2 == 1 and side <= WIDEST


def convolve_silu(X: Tensor, weight: Tensor, bias: Tensor, map_size: tuple[int, int]) -> Tensor:
    """As ``plain_convolve_silu``; X is copied unless its rows are evenly spaced, as those of half a table are."""
    X_hat: Tensor = _ConvolveSilu.apply(X, weight.contiguous(), bias.contiguous(), map_size)
    return X_hat


class _ConvolveSilu(torch.autograd.Function):
    """Keeps X, the weights, and the slope of the silu at each value."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        X, weight, bias, map_size = given
        X, row_stride = evenly_spaced(X)
        grid, rows, chunk, sizes = _sizes(X, row_stride, weight, map_size)
        X_hat, slope = X.new_empty(X.shape), X.new_empty(X.shape)
        with torch.cuda.device_of(X):  # Triton launches on the current device
            _forward_kernel[grid](X, weight, bias, X_hat, slope, rows, chunk, **sizes, num_warps=1)
        ctx.save_for_backward(X, weight, slope)
        ctx.sizes = grid, rows, chunk, sizes
        return X_hat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        X, weight, slope = ctx.saved_tensors
        grid, rows, chunk, sizes = ctx.sizes
        grad_X = torch.empty_like(slope)
        shares = X.new_empty(grid[0], weight.numel() + len(weight))  # those of the weights, then those of the bias
        with torch.cuda.device_of(X):
            _backward_kernel[grid](
                X, weight, slope, grad.contiguous(), grad_X, shares, rows, chunk, **sizes, num_warps=1
            )
        grad_weight, grad_bias = shares.sum(0).split([weight.numel(), len(weight)])
        return grad_X, grad_weight.view_as(weight), grad_bias, None


def _sizes(
    X: Tensor, row_stride: int, weight: Tensor, map_size: tuple[int, int]
) -> tuple[tuple[int, int], int, int, dict[str, int]]:
    """Programs by rows and columns, the rows in all and for a program, and what is compiled in."""
    batch, steps, d = X.shape
    block = min(triton.next_power_of_2(d), COLUMNS)
    rows, columns = batch * steps, triton.cdiv(d, block)
    parts, chunk = split_rows(rows, TILE // block, PROGRAMS // columns)
    sizes = {
        **{"H": map_size[0], "W": map_size[1], "d": d, "ROW_STRIDE": row_stride, "SIDE": weight.shape[-1]},
        **{"BLOCK_R": TILE // block, "BLOCK_D": block},
    }
    return (parts, columns), rows, chunk, sizes


# Row counts change with every batch: compiled in are neither they nor what divides them.
@triton.jit(do_not_specialize=["rows", "chunk"])
def _forward_kernel(
    X, weight, bias, X_hat, slope, rows, chunk,
    H: tl.constexpr, W: tl.constexpr, d: tl.constexpr, ROW_STRIDE: tl.constexpr, SIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    w = _weights(weight, c, d, SIDE)
    offset = tl.load(bias + c, c < d, 0)[None, :]
    start, end = tl.program_id(0) * chunk, tl.minimum((tl.program_id(0) + 1) * chunk, rows)
    while start < end:
        sample, i, j = position(start + tl.arange(0, BLOCK_R), rows, H, W)
        value = tl.zeros([BLOCK_R, BLOCK_D], tl.float32) + offset
        for k in tl.static_range(SIDE * SIDE):
            from_i, from_j = i + k // SIDE - SIDE // 2, j + k % SIDE - SIDE // 2
            value += w[k] * _load(X, sample, from_i, from_j, c, ROW_STRIDE, d, H, W)
        share = tl.sigmoid(value)
        at, inside = places(sample, i, j, c, d, H, W)
        tl.store(X_hat + at, value * share, inside)
        tl.store(slope + at, share * (1 + value * (1 - share)), inside)
        start += BLOCK_R


@triton.jit(do_not_specialize=["rows", "chunk"])
def _backward_kernel(
    X, weight, slope, grad, grad_X, shares, rows, chunk,
    H: tl.constexpr, W: tl.constexpr, d: tl.constexpr, ROW_STRIDE: tl.constexpr, SIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Along a side, weight k joins position n with what is made at n + SIDE // 2 - k."""
    weights: tl.constexpr = SIDE * SIDE
    c = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    w = _weights(weight, c, d, SIDE)
    dw = (tl.zeros([BLOCK_R, BLOCK_D], tl.float32),) * weights
    db = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    start, end = tl.program_id(0) * chunk, tl.minimum((tl.program_id(0) + 1) * chunk, rows)
    while start < end:
        sample, i, j = position(start + tl.arange(0, BLOCK_R), rows, H, W)
        value = _load(X, sample, i, j, c, ROW_STRIDE, d, H, W)
        gradient = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
        for k in tl.static_range(weights):
            to_i, to_j = i + SIDE // 2 - k // SIDE, j + SIDE // 2 - k % SIDE
            g = _load(grad, sample, to_i, to_j, c, d, d, H, W) * _load(slope, sample, to_i, to_j, c, d, d, H, W)
            gradient += w[k] * g
            dw = dw[:k] + (dw[k] + value * g,) + dw[k + 1 :]  # noqa: RUF005 (Triton has no stars)
            if k == weights // 2:  # the position itself
                db += g
        at, inside = places(sample, i, j, c, d, H, W)
        tl.store(grad_X + at, gradient, inside)
        start += BLOCK_R
    shares += tl.program_id(0) * (weights + 1) * d
    for k in tl.static_range(weights):
        tl.store(shares + c * weights + k, tl.sum(dw[k], 0), c < d)
    tl.store(shares + weights * d + c, tl.sum(db, 0), c < d)


@triton.jit
def _load(table, sample, i, j, c, ROW_STRIDE: tl.constexpr, d: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """Channels of positions; 0 outside the map."""
    at, inside = places(sample, i, j, c, ROW_STRIDE, H, W)
    return tl.load(table + at, inside & (c < d)[None, :], 0)  # where rows are farther apart than d, others lie between


@triton.jit
def _weights(weight, c, d: tl.constexpr, SIDE: tl.constexpr):
    """Those of each channel, row by row."""
    w = ()
    for k in tl.static_range(SIDE * SIDE):
        w += (tl.load(weight + SIDE * SIDE * c + k, c < d, 0)[None, :],)
    return w
