"""``BatchNorm`` as Triton kernels, for maps whose channels lie side by side in memory.

What is computed is defined by ``plain_norm`` in ``norm``, which imports this module where there is Triton. A map
(B, C, H, W) is a table of B H W rows and C columns. Forwards, its rows are read once for the statistics and once to be
normalised, with shortcut and ReLU on the way; backwards likewise, once for the sums and once for the gradients.
Programs that sum take a fixed chunk of rows and their sums are added in a fixed order, so that results are the same
bits every time. Parts of a batch that are normalised apart are tables of ``rows`` rows below each other, each with
programs of its own, which do what they would do for that part alone.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.maps_triton import split_rows
from s6mod.maps_triton import suits as suits

if TYPE_CHECKING:
    from s6mod.networks.norm import BatchNorm

COLUMNS = 64  # that a program takes, at the most
# Of programs that sum: numbers in their registers, how many run side by side (an H200 has 132 processors), warps.
SUMS = 2048, 2112, 4
JOINT_SUMS = 2048, 264, 8  # of several parts: images are few then, and the sums of fewer programs are added sooner
# Of those that write: numbers in their registers and warps.
WRITES = 2048, 4
JOINT_WRITES = 4096, 4


def norm(layer: "BatchNorm", x: Tensor, shortcut: Tensor | None) -> Tensor:
    """As ``BatchNorm.forward`` in training mode: the moving averages take their share of the batch."""
    if shortcut is not None:
        shortcut = shortcut.to(x.dtype).contiguous(memory_format=torch.channels_last)
    moving = layer.running_mean, layer.running_var, layer.num_batches_tracked
    options = layer.momentum, layer.eps, layer.relu, layer.parts
    y: Tensor = _Norm.apply(x, layer.weight, layer.bias, shortcut, moving, *options)
    return y


def settled_norm(layer: "BatchNorm", x: Tensor, shortcut: Tensor | None) -> Tensor:
    """As ``BatchNorm.forward`` in eval mode, without gradients: one kernel instead of up to three.

    It rounds to the type of ``x`` wherever the plain version does, once for each of its operations.
    """
    if shortcut is not None:
        shortcut = shortcut.to(x.dtype).contiguous(memory_format=torch.channels_last)
    rows, channels, _, _, _, sizes = _sizes(x, 1)
    scale = (layer.running_var + layer.eps).rsqrt()  # by PyTorch, whose last bit it then has
    y = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _settle[(triton.cdiv(rows, sizes["BLOCK_R"]), triton.cdiv(channels, sizes["BLOCK_C"]))](
            x, x if shortcut is None else shortcut, y, layer.running_mean, scale, layer.weight, layer.bias,
            rows, channels, SHORTCUT=shortcut is not None, RELU=layer.relu, **sizes,
        )  # fmt: skip
    return y


class _Norm(torch.autograd.Function):
    """Keeps the input and, where a shortcut came in before the ReLU, the output, which tells where that was open."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, shortcut, moving, momentum, eps, relu, parts = given
        rows, channels, chunks, chunk, sum_sizes, sizes = _sizes(x, parts)
        grid_c = triton.cdiv(channels, sizes["BLOCK_C"])
        sums = x.new_empty(parts, 2, chunks, channels, dtype=torch.float32)
        moments = x.new_empty(parts, 2, channels, dtype=torch.float32)  # mean, 1 / standard deviation
        y = torch.empty_like(x)
        with torch.cuda.device_of(x):  # Triton launches on the current device
            _moment_sums[(chunks, grid_c, parts)](x, sums, rows, channels, chunk, **sum_sizes)
            _moments[(channels,)](
                x, sums, moments, *moving, rows, channels, chunks, momentum, eps,
                PARTS=parts, CHUNKS=triton.next_power_of_2(chunks), num_warps=1,
            )  # fmt: skip
            _normalise[(triton.cdiv(rows, sizes["BLOCK_R"]), grid_c, parts)](
                x, x if shortcut is None else shortcut, y, moments, weight, bias, rows, channels,
                SHORTCUT=shortcut is not None, RELU=relu, **sizes,
            )  # fmt: skip
        ctx.save_for_backward(x, y if shortcut is not None and relu else x, moments, weight, bias)
        ctx.shortcut, ctx.relu, ctx.parts = shortcut is not None, relu, parts
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, moments, weight, bias = ctx.saved_tensors
        dy = dy.to(x.dtype).contiguous(memory_format=torch.channels_last)
        rows, channels, chunks, chunk, sum_sizes, sizes = _sizes(x, ctx.parts)
        grid_c = triton.cdiv(channels, sizes["BLOCK_C"])
        sums = x.new_empty(ctx.parts, 2, chunks, channels, dtype=torch.float32)
        totals = x.new_empty(ctx.parts, 2, channels, dtype=torch.float32)
        gradients = x.new_empty(2, channels, dtype=torch.float32)  # of bias and weight
        dx = torch.empty_like(x)
        through_relu = ctx.shortcut and ctx.relu  # then the shortcut's gradient is not dy itself
        d_shortcut = torch.empty_like(x) if through_relu else None
        with torch.cuda.device_of(x):
            flags = {"SHORTCUT": ctx.shortcut, "RELU": ctx.relu}
            _gradient_sums[(chunks, grid_c, ctx.parts)](
                x, y, dy, moments, weight, bias, sums, rows, channels, chunk, **flags, **sum_sizes
            )  # fmt: skip
            _add_sums[(channels,)](
                sums, totals, gradients, channels, chunks,
                PARTS=ctx.parts, CHUNKS=triton.next_power_of_2(chunks), num_warps=1,
            )  # fmt: skip
            _gradients[(triton.cdiv(rows, sizes["BLOCK_R"]), grid_c, ctx.parts)](
                x, y, dy, moments, weight, bias, totals, dx, dx if d_shortcut is None else d_shortcut,
                rows, channels, **flags, **sizes,
            )  # fmt: skip
        if ctx.shortcut and d_shortcut is None:
            d_shortcut = dy
        return dx, gradients[1], gradients[0], d_shortcut, None, None, None, None, None


def _sizes(x: Tensor, parts: int) -> tuple[int, int, int, int, dict[str, int], dict[str, int]]:
    """Rows and columns of a part's table, its chunks and their rows; the blocks of programs that sum and that write."""
    tile, programs, warps = SUMS if parts == 1 else JOINT_SUMS
    channels = x.shape[1]
    block = min(triton.next_power_of_2(channels), COLUMNS)
    rows = x.numel() // channels // parts
    chunks, chunk = split_rows(rows, tile // block, programs // triton.cdiv(channels, block) // parts)
    by_sums = {"BLOCK_R": tile // block, "BLOCK_C": block, "num_warps": warps}
    tile, warps = WRITES if parts == 1 else JOINT_WRITES
    return rows, channels, chunks, chunk, by_sums, {"BLOCK_R": tile // block, "BLOCK_C": block, "num_warps": warps}


# Row counts change with every batch: compiled in are neither they nor what divides them.
@triton.jit(do_not_specialize=["rows", "chunk"])
def _moment_sums(x, sums, rows, channels, chunk, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Sums and square sums of a chunk of rows, relative to the first row, so that nothing is lost in the squares."""
    number, chunks, part = tl.program_id(0), tl.num_programs(0), tl.program_id(2).to(tl.int64)
    x += part * rows * channels
    sums += part * 2 * chunks * channels
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    pivot = tl.load(x + c, c < channels, 0).to(tl.float32)
    first = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    second = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start, end = number * chunk, tl.minimum((number + 1) * chunk, rows)
    while start < end:  # the interpreter cannot range over numbers of a program's own
        r = start + tl.arange(0, BLOCK_R)
        inside = (r < rows)[:, None] & (c < channels)[None, :]
        at = r[:, None].to(tl.int64) * channels + c[None, :]
        value = tl.where(inside, tl.load(x + at, inside, 0).to(tl.float32) - pivot[None, :], 0)
        first += value
        second += value * value
        start += BLOCK_R
    at = number * channels + c
    tl.store(sums + at, tl.sum(first, 0), c < channels)
    tl.store(sums + chunks * channels + at, tl.sum(second, 0), c < channels)


@triton.jit(do_not_specialize=["rows", "chunks"])
def _moments(
    x, sums, moments, running_mean, running_var, num_batches, rows, channels, chunks, momentum, eps,
    PARTS: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Mean and inverse deviation of one channel, and the moving averages of mean and unbiased variance."""
    c = tl.program_id(0)
    n = tl.arange(0, CHUNKS)
    moving_mean, moving_var = tl.load(running_mean + c), tl.load(running_var + c)
    for _ in tl.static_range(PARTS):  # in turn, as the moving averages take them
        first = tl.sum(tl.load(sums + n * channels + c, n < chunks, 0), 0) / rows
        second = tl.sum(tl.load(sums + (chunks + n) * channels + c, n < chunks, 0), 0) / rows
        mean = tl.load(x + c).to(tl.float32) + first
        variance = tl.maximum(second - first * first, 0)
        tl.store(moments + c, mean)
        tl.store(moments + channels + c, 1 / tl.sqrt(variance + eps))
        unbiased = variance * (rows / tl.maximum(rows - 1, 1))
        moving_mean += momentum * (mean - moving_mean)
        moving_var += momentum * (unbiased - moving_var)
        x += rows.to(tl.int64) * channels
        sums += 2 * chunks * channels
        moments += 2 * channels
    tl.store(running_mean + c, moving_mean)
    tl.store(running_var + c, moving_var)
    if c == 0:
        tl.store(num_batches, tl.load(num_batches) + PARTS)


@triton.jit(do_not_specialize=["rows"])
def _normalise(
    x, shortcut, y, moments, weight, bias, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    at, inside, c, part = _block(rows, channels, BLOCK_R, BLOCK_C)
    _, value = _affine(x, at, inside, c, moments + part * 2 * channels, weight, bias, channels)
    if SHORTCUT:
        value += tl.load(shortcut + at, inside, 0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0)
    tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["rows"])
def _settle(
    x, shortcut, y, mean, scale, weight, bias, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """relu(weight (x - mean) scale + bias + shortcut), rounded after each sum."""
    at, inside, c, _ = _block(rows, channels, BLOCK_R, BLOCK_C)
    m, s = tl.load(mean + c, c < channels, 0)[None, :], tl.load(scale + c, c < channels, 0)[None, :]
    w, b = tl.load(weight + c, c < channels, 0)[None, :], tl.load(bias + c, c < channels, 0)[None, :]
    value = w * (tl.load(x + at, inside, 0).to(tl.float32) - m) * s + b
    if SHORTCUT:
        value = value.to(y.dtype.element_ty).to(tl.float32) + tl.load(shortcut + at, inside, 0).to(tl.float32)
    if RELU:
        value = tl.where(value < 0, 0.0, value)  # a NaN stays
    tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit
def _block(rows, channels, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Where the block of this program lies in memory, whether it is inside its part, its columns and the part."""
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.program_id(2).to(tl.int64)
    at = (part * rows + r)[:, None] * channels + c[None, :]
    return at, (r < rows)[:, None] & (c < channels)[None, :], c, part


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
    number, chunks, part = tl.program_id(0), tl.num_programs(0), tl.program_id(2).to(tl.int64)
    moments += part * 2 * channels
    sums += part * 2 * chunks * channels
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    second = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    start, end = number * chunk, tl.minimum((number + 1) * chunk, rows)
    while start < end:  # the interpreter cannot range over numbers of a program's own
        r = start + tl.arange(0, BLOCK_R)
        inside = (r < rows)[:, None] & (c < channels)[None, :]
        at = (part * rows + r)[:, None] * channels + c[None, :]
        normal, gradient = _behind_relu(
            x, y, dy, at, inside, c, moments, weight, bias, channels, SHORTCUT, RELU
        )  # fmt: skip
        first += gradient
        second += gradient * normal
        start += BLOCK_R
    at = number * channels + c
    tl.store(sums + at, tl.sum(first, 0), c < channels)
    tl.store(sums + chunks * channels + at, tl.sum(second, 0), c < channels)


@triton.jit(do_not_specialize=["chunks"])
def _add_sums(sums, totals, gradients, channels, chunks, PARTS: tl.constexpr, CHUNKS: tl.constexpr):
    """Of one channel, the sums over each part, which its dx needs, and over all parts: the gradients."""
    d_bias, d_weight = _add_chunks(sums, totals, channels, chunks, 0, CHUNKS)
    for part in tl.static_range(1, PARTS):
        first, second = _add_chunks(sums, totals, channels, chunks, part, CHUNKS)
        d_bias += first
        d_weight += second
    tl.store(gradients + tl.program_id(0), d_bias)
    tl.store(gradients + channels + tl.program_id(0), d_weight)


@triton.jit
def _add_chunks(sums, totals, channels, chunks, part, CHUNKS: tl.constexpr):
    """The two sums of one channel over all chunks of a part, which are also stored."""
    c = tl.program_id(0)
    n = tl.arange(0, CHUNKS)
    sums += part * 2 * chunks * channels + c
    first = tl.sum(tl.load(sums + n * channels, n < chunks, 0), 0)
    second = tl.sum(tl.load(sums + (chunks + n) * channels, n < chunks, 0), 0)
    tl.store(totals + part * 2 * channels + c, first)
    tl.store(totals + (part * 2 + 1) * channels + c, second)
    return first, second


@triton.jit(do_not_specialize=["rows"])
def _gradients(
    x, y, dy, moments, weight, bias, totals, dx, d_shortcut, rows, channels,
    SHORTCUT: tl.constexpr, RELU: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dx = weight / deviation * (g - mean of g - normal * mean of (g normal)), g being behind the ReLU."""
    at, inside, c, part = _block(rows, channels, BLOCK_R, BLOCK_C)
    moments += part * 2 * channels
    totals += part * 2 * channels
    normal, gradient = _behind_relu(x, y, dy, at, inside, c, moments, weight, bias, channels, SHORTCUT, RELU)
    if SHORTCUT and RELU:
        tl.store(d_shortcut + at, gradient.to(d_shortcut.dtype.element_ty), inside)
    mean_g = tl.load(totals + c, c < channels, 0)[None, :] / rows
    mean_gn = tl.load(totals + channels + c, c < channels, 0)[None, :] / rows
    slope = (tl.load(weight + c, c < channels, 0) * tl.load(moments + channels + c, c < channels, 0))[None, :]
    tl.store(dx + at, (slope * (gradient - mean_g - normal * mean_gn)).to(dx.dtype.element_ty), inside)
