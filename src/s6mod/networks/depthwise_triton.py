"""``Depthwise`` as Triton kernels, for maps whose channels lie side by side in memory.

What is computed is defined by ``plain_depthwise`` in ``depthwise``, which imports this module where there is Triton.
A program takes fixed output positions, block by block, and keeps the weights of its channels. Backwards it takes the
stride x stride input positions beneath each of them: the same few output gradients give their gradients and, times the
inputs, those of the weights. These sums are added in a fixed order, so that results are the same bits every time.
Kernels compute in float32, and no size but that of the map is compiled in.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, assignment"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.maps_triton import places, position, split_rows
from s6mod.maps_triton import suits as suits

COLUMNS = 64  # that a program takes, at the most
TILE = 512  # numbers in a block: four to a thread, since weights and their gradients take nine registers for each
PROGRAMS = 1056  # that share the rows: eight for each of an H200's processors
WARPS = 4


def depthwise(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """As ``plain_depthwise``; where autocast would round the weights too, they stay as they are."""
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    y: Tensor = _Depthwise.apply(x, weight.contiguous(), stride)
    return y


class _Depthwise(torch.autograd.Function):
    """Keeps the input and the weights."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, stride = given
        batch, channels, height, width = x.shape
        shape = batch, channels, triton.cdiv(height, stride), triton.cdiv(width, stride)
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        grid, rows, chunk, sizes = _sizes(x, stride)
        with torch.cuda.device_of(x):  # Triton launches on the current device
            _depthwise_forward[grid](x, weight, y, rows, chunk, **sizes, num_warps=WARPS)
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = dy.to(x.dtype).contiguous(memory_format=torch.channels_last)
        grid, rows, chunk, sizes = _sizes(x, ctx.stride)
        dx = torch.empty_like(x)
        sums = x.new_empty(grid[0], *weight.shape, dtype=torch.float32)
        with torch.cuda.device_of(x):
            _depthwise_backward[grid](x, weight, dy, dx, sums, rows, chunk, **sizes, num_warps=WARPS)
        return dx, sums.sum(0), None


def _sizes(x: Tensor, stride: int) -> tuple[tuple[int, int], int, int, dict[str, int]]:
    """Programs by rows and columns, the rows (output positions) in all and for a program, and what is compiled in."""
    batch, channels, height, width = x.shape
    block = min(triton.next_power_of_2(channels), COLUMNS)
    rows, columns = batch * triton.cdiv(height, stride) * triton.cdiv(width, stride), triton.cdiv(channels, block)
    parts, chunk = split_rows(rows, TILE // block, PROGRAMS // columns)
    sizes = {"C": channels, "H": height, "W": width, "STRIDE": stride, "BLOCK_R": TILE // block, "BLOCK_C": block}
    return (parts, columns), rows, chunk, sizes


# Row counts change with every batch: compiled in are neither they nor what divides them.
@triton.jit(do_not_specialize=["rows", "chunk"])
def _depthwise_forward(
    x, weight, y, rows, chunk,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    out_h: tl.constexpr = (H + STRIDE - 1) // STRIDE
    out_w: tl.constexpr = (W + STRIDE - 1) // STRIDE
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    w = _weights(weight, c, C)
    start, end = tl.program_id(0) * chunk, tl.minimum((tl.program_id(0) + 1) * chunk, rows)
    while start < end:
        image, i, j = position(start + tl.arange(0, BLOCK_R), rows, out_h, out_w)
        value = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
        for k in tl.static_range(9):
            at, inside = places(image, STRIDE * i + k // 3 - 1, STRIDE * j + k % 3 - 1, c, C, H, W)
            value += w[k] * tl.load(x + at, inside, 0).to(tl.float32)
        at, inside = places(image, i, j, c, C, out_h, out_w)
        tl.store(y + at, value.to(y.dtype.element_ty), inside)
        start += BLOCK_R


@triton.jit(do_not_specialize=["rows", "chunk"])
def _depthwise_backward(
    x, weight, dy, dx, sums, rows, chunk,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Along a side, weight k joins input n with output (n + 1 - k) / STRIDE, where that is a whole number."""
    out_h: tl.constexpr = (H + STRIDE - 1) // STRIDE
    out_w: tl.constexpr = (W + STRIDE - 1) // STRIDE
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    w = _weights(weight, c, C)
    dw = (tl.zeros([BLOCK_R, BLOCK_C], tl.float32),) * 9
    start, end = tl.program_id(0) * chunk, tl.minimum((tl.program_id(0) + 1) * chunk, rows)
    while start < end:
        image, i, j = position(start + tl.arange(0, BLOCK_R), rows, out_h, out_w)
        gradients = ()  # stored when all is loaded, since loads would wait for stores
        for phase in tl.static_range(STRIDE * STRIDE):
            at, inside = places(image, STRIDE * i + phase // STRIDE, STRIDE * j + phase % STRIDE, c, C, H, W)
            value = tl.load(x + at, inside, 0).to(tl.float32)
            gradient = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
            for k in tl.static_range(9):
                if (phase // STRIDE + 1 - k // 3) % STRIDE == 0 and (phase % STRIDE + 1 - k % 3) % STRIDE == 0:
                    out_i = i + (phase // STRIDE + 1 - k // 3) // STRIDE
                    out_j = j + (phase % STRIDE + 1 - k % 3) // STRIDE
                    at, inside = places(image, out_i, out_j, c, C, out_h, out_w)
                    g = tl.load(dy + at, inside, 0).to(tl.float32)
                    gradient += w[k] * g
                    dw = dw[:k] + (dw[k] + value * g,) + dw[k + 1 :]  # noqa: RUF005 (Triton has no stars)
            gradients += (gradient.to(dx.dtype.element_ty),)
        for phase in tl.static_range(STRIDE * STRIDE):
            at, inside = places(image, STRIDE * i + phase // STRIDE, STRIDE * j + phase % STRIDE, c, C, H, W)
            tl.store(dx + at, gradients[phase], inside)
        start += BLOCK_R
    for k in tl.static_range(9):
        tl.store(sums + (tl.program_id(0) * C + c) * 9 + k, tl.sum(dw[k], 0), c < C)


@triton.jit
def _weights(weight, c, C: tl.constexpr):
    """Nine of each channel."""
    w = ()
    for k in tl.static_range(9):
        w += (tl.load(weight + 9 * c + k, c < C, 0).to(tl.float32)[None, :],)
    return w
