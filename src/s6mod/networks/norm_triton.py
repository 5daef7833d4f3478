"""``BatchNorm`` in training mode as Triton kernels, for maps whose channels lie side by side in memory.

What is computed is defined by ``plain_norm`` in ``norm``, which imports this module where there is Triton. A map
(B, C, H, W) is a table of B H W rows and C columns. Forwards, its rows are read once for the statistics and once to be
normalised, with shortcut and ReLU on the way; backwards likewise, once for the sums and once for the gradients.
Programs that sum take fixed rows and their sums are added in a fixed order, so that results are the same bits every
time.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.networks.maps_triton import split_rows
from s6mod.networks.maps_triton import suits as suits

if TYPE_CHECKING:
    from s6mod.networks.norm import BatchNorm

COLUMNS = 64  # that a program takes, at the most
TILE = 2048  # numbers in the registers of a program
PROGRAMS = 2112  # that sum side by side: sixteen for each of an H200's processors
WARPS = 4


def norm(layer: "BatchNorm", x: Tensor, shortcut: Tensor | None) -> Tensor:
    """As ``BatchNorm.forward`` in training mode: the moving averages take their share of the batch."""
    if shortcut is not None:
        shortcut = shortcut.to(x.dtype).contiguous(memory_format=torch.channels_last)
    moving = layer.running_mean, layer.running_var, layer.num_batches_tracked
    y: Tensor = _Norm.apply(x, layer.weight, layer.bias, shortcut, moving, layer.momentum, layer.eps, layer.relu)
    return y


class _Norm(torch.autograd.Function):
    """Keeps the input and, where a shortcut came in before the ReLU, the output, which tells where that was open."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, shortcut, moving, momentum, eps, relu = given
        rows, channels, sizes = _sizes(x)
        grid_c = triton.cdiv(channels, sizes["BLOCK_C"])
        parts, chunk = split_rows(rows, sizes["BLOCK_R"], PROGRAMS // grid_c)
        sums = x.new_empty(2, parts, channels, dtype=torch.float32)
        moments = x.new_empty(2, channels, dtype=torch.float32)  # mean, 1 / standard deviation
        y = torch.empty_like(x)
        with torch.cuda.device_of(x):  # Triton launches on the current device
            _moment_sums[(parts, grid_c)](x, sums, rows, channels, chunk, **sizes, num_warps=WARPS)
            _moments[(channels,)](
                x, sums, moments, *moving, rows, channels, parts, momentum, eps,
                PARTS=triton.next_power_of_2(parts), num_warps=1,
            )  # fmt: skip
            _normalise[(triton.cdiv(rows, sizes["BLOCK_R"]), grid_c)](
                x, x if shortcut is None else shortcut, y, moments, weight, bias, rows, channels,
                SHORTCUT=shortcut is not None, RELU=relu, **sizes, num_warps=WARPS,
            )  # fmt: skip
        ctx.save_for_backward(x, y if shortcut is not None and relu else x, moments, weight, bias)
        ctx.shortcut, ctx.relu = shortcut is not None, relu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, moments, weight, bias = ctx.saved_tensors
        dy = dy.to(x.dtype).contiguous(memory_format=torch.channels_last)
        rows, channels, sizes = _sizes(x)
        grid_c = triton.cdiv(channels, sizes["BLOCK_C"])
        parts, chunk = split_rows(rows, sizes["BLOCK_R"], PROGRAMS // grid_c)
        sums = x.new_empty(2, parts, channels, dtype=torch.float32)
        gradients = x.new_empty(2, channels, dtype=torch.float32)  # of bias and weight
        dx = torch.empty_like(x)
        through_relu = ctx.shortcut and ctx.relu  # then the shortcut's gradient is not dy itself
        d_shortcut = torch.empty_like(x) if through_relu else None
        with torch.cuda.device_of(x):
            flags = {"SHORTCUT": ctx.shortcut, "RELU": ctx.relu, **sizes, "num_warps": WARPS}
            _gradient_sums[(parts, grid_c)](x, y, dy, moments, weight, bias, sums, rows, channels, chunk, **flags)
            _add_parts[(channels,)](sums, gradients, channels, parts, PARTS=triton.next_power_of_2(parts), num_warps=1)
            _gradients[(triton.cdiv(rows, sizes["BLOCK_R"]), grid_c)](
                x, y, dy, moments, weight, bias, gradients, dx, dx if d_shortcut is None else d_shortcut,
                rows, channels, **flags,
            )  # fmt: skip
        if ctx.shortcut and d_shortcut is None:
            d_shortcut = dy
        return dx, gradients[1], gradients[0], d_shortcut, None, None, None, None


def _sizes(x: Tensor) -> tuple[int, int, dict[str, int]]:
    """Rows and columns of the table, and the block that a program takes of it."""
    channels = x.shape[1]
    block = min(triton.next_power_of_2(channels), COLUMNS)
    return x.numel() // channels, channels, {"BLOCK_R": TILE // block, "BLOCK_C": block}


# Row counts change with every batch: compiled in are neither they nor what divides them.
@triton.jit(do_not_specialize=["rows", "chunk"])
def _moment_sums(x, sums, rows, channels, chunk, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Sums and square sums of a chunk of rows, relative to the first row, so that nothing is lost in the squares."""
    part, parts = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    pivot = tl.load(x + c, c < channels, 0).to(tl.float32)
    first = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    second = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start, end = part * chunk, tl.minimum((part + 1) * chunk, rows)
    while start < end:  # the interpreter cannot range over numbers of a program's own
        r = start + tl.arange(0, BLOCK_R)
        inside = (r < rows)[:, None] & (c < channels)[None, :]
        at = r[:, None].to(tl.int64) * channels + c[None, :]
        value = tl.where(inside, tl.load(x + at, inside, 0).to(tl.float32) - pivot[None, :], 0)
        first += value
        second += value * value
        start += BLOCK_R
    at = part * channels + c
    tl.store(sums + at, tl.sum(first, 0), c < channels)
    tl.store(sums + parts * channels + at, tl.sum(second, 0), c < channels)


@triton.jit(do_not_specialize=["rows", "parts"])
def _moments(
    x, sums, moments, running_mean, running_var, num_batches, rows, channels, parts, momentum, eps,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Mean and inverse deviation of one channel, and the moving averages of mean and unbiased variance."""
    c = tl.program_id(0)
    p = tl.arange(0, PARTS)
    first = tl.sum(tl.load(sums + p * channels + c, p < parts, 0), 0) / rows
    second = tl.sum(tl.load(sums + (parts + p) * channels + c, p < parts, 0), 0) / rows
    mean = tl.load(x + c).to(tl.float32) + first
    variance = tl.maximum(second - first * first, 0)
    tl.store(moments + c, mean)
    tl.store(moments + channels + c, 1 / tl.sqrt(variance + eps))
    unbiased = variance * (rows / tl.maximum(rows - 1, 1))
    old_mean, old_var = tl.load(running_mean + c), tl.load(running_var + c)
    tl.store(running_mean + c, old_mean + momentum * (mean - old_mean))
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var))
    if c == 0:
        tl.store(num_batches, tl.load(num_batches) + 1)


@triton.jit(do_not_specialize=["rows"])
def _normalise(
    x, shortcut, y, moments, weight, bias, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r < rows)[:, None] & (c < channels)[None, :]
    at = r[:, None].to(tl.int64) * channels + c[None, :]
    _, value = _affine(x, at, inside, c, moments, weight, bias, channels)
    if SHORTCUT:
        value += tl.load(shortcut + at, inside, 0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0)
    tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit
def _affine(x, at, inside, c, moments, weight, bias, channels):
    """The input normalised, and that times weight plus bias."""
    mean = tl.load(moments + c, c < channels, 0)[None, :]
    scale = tl.load(moments + channels + c, c < channels, 0)[None, :]
    normal = (tl.load(x + at, inside, 0).to(tl.float32) - mean) * scale
    w, b = tl.load(weight + c, c < channels, 0)[None, :], tl.load(bias + c, c < channels, 0)[None, :]
    return normal, normal * w + b


@triton.jit
def _behind_relu(
    x, y, dy, at, inside, c, moments, weight, bias, channels, SHORTCUT: tl.constexpr, RELU: tl.constexpr
):  # fmt: skip
    """The input normalised, and the gradient as it comes out of the ReLU."""
    normal, value = _affine(x, at, inside, c, moments, weight, bias, channels)
    gradient = tl.load(dy + at, inside, 0).to(tl.float32)
    if RELU:
        if SHORTCUT:
            value = tl.load(y + at, inside, 0).to(tl.float32)
        gradient = tl.where(value > 0, gradient, 0)
    return normal, tl.where(inside, gradient, 0)


@triton.jit(do_not_specialize=["rows", "chunk"])
def _gradient_sums(
    x, y, dy, moments, weight, bias, sums, rows, channels, chunk,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Over a chunk of rows, the sums that are the gradients of bias and weight."""
    part, parts = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    second = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start, end = part * chunk, tl.minimum((part + 1) * chunk, rows)
    while start < end:  # the interpreter cannot range over numbers of a program's own
        r = start + tl.arange(0, BLOCK_R)
        inside = (r < rows)[:, None] & (c < channels)[None, :]
        at = r[:, None].to(tl.int64) * channels + c[None, :]
        normal, gradient = _behind_relu(
            x, y, dy, at, inside, c, moments, weight, bias, channels, SHORTCUT, RELU
        )  # fmt: skip
        first += gradient
        second += gradient * normal
        start += BLOCK_R
    at = part * channels + c
    tl.store(sums + at, tl.sum(first, 0), c < channels)
    tl.store(sums + parts * channels + at, tl.sum(second, 0), c < channels)


@triton.jit(do_not_specialize=["parts"])
def _add_parts(sums, totals, channels, parts, PARTS: tl.constexpr):
    c = tl.program_id(0)
    p = tl.arange(0, PARTS)
    tl.store(totals + c, tl.sum(tl.load(sums + p * channels + c, p < parts, 0), 0))
    tl.store(totals + channels + c, tl.sum(tl.load(sums + (parts + p) * channels + c, p < parts, 0), 0))


@triton.jit(do_not_specialize=["rows"])
def _gradients(
    x, y, dy, moments, weight, bias, totals, dx, d_shortcut, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dx = weight / deviation * (g - mean of g - normal * mean of (g normal)), g being behind the ReLU."""
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r < rows)[:, None] & (c < channels)[None, :]
    at = r[:, None].to(tl.int64) * channels + c[None, :]
    normal, gradient = _behind_relu(x, y, dy, at, inside, c, moments, weight, bias, channels, SHORTCUT, RELU)
    if SHORTCUT and RELU:
        tl.store(d_shortcut + at, gradient.to(d_shortcut.dtype.element_ty), inside)
    mean_g = tl.load(totals + c, c < channels, 0)[None, :] / rows
    mean_gn = tl.load(totals + channels + c, c < channels, 0)[None, :] / rows
    slope = (tl.load(weight + c, c < channels, 0) * tl.load(moments + channels + c, c < channels, 0))[None, :]
    tl.store(dx + at, (slope * (gradient - mean_g - normal * mean_gn)).to(dx.dtype.element_ty), inside)
