"""``attend`` as Triton kernels, for maps whose channels lie side by side in memory.

What is computed is defined by ``plain_attend`` in ``attention``, which imports this module where there is Triton.
Backwards, one kernel finds the gradients of the map and of the weights as interpolated, and another gathers the latter
for each place of the weights from the few positions that it had a share in, always in the same order. Kernels compute
in float32, and no size but that of the map is compiled in.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod import maps_triton
from s6mod.maps_triton import places, position

COLUMNS = 64  # that a program takes, at the most
TILE = 1024  # numbers in the registers of a program
WARPS = 4


def suits(x: Tensor, weights: Tensor) -> bool:
    """Whether kernels exist: of one type, channels last, and the weights of half the size."""
    half = tuple(triton.cdiv(side, 2) for side in x.shape[2:])
    fits = x.dtype == weights.dtype and weights.shape == (*x.shape[:2], *half)
    return fits and maps_triton.suits(x) and maps_triton.suits(weights)


def attend(x: Tensor, weights: Tensor) -> Tensor:
    """As ``plain_attend``."""
    y: Tensor = _Attend.apply(x, weights)
    return y


class _Attend(torch.autograd.Function):
    """Keeps its two inputs; the sigmoid is found anew."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weights = given
        y = torch.empty_like(x)
        grid, rows, sizes = _sizes(x, x.shape)
        with torch.cuda.device_of(x):  # Triton launches on the current device
            _attend_forward[grid](x, weights, y, rows, **sizes)
        ctx.save_for_backward(x, weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, weights = ctx.saved_tensors
        dy = dy.to(x.dtype).contiguous(memory_format=torch.channels_last)
        dx, d_interpolated, d_weights = torch.empty_like(x), torch.empty_like(x), torch.empty_like(weights)
        with torch.cuda.device_of(x):
            grid, rows, sizes = _sizes(x, x.shape)
            _attend_backward[grid](x, weights, dy, dx, d_interpolated, rows, **sizes)
            grid, rows, sizes = _sizes(x, weights.shape)
            _attend_gather[grid](d_interpolated, d_weights, rows, **sizes)
        return dx, d_weights


def _sizes(x: Tensor, over: torch.Size) -> tuple[tuple[int, int], int, dict[str, int]]:
    """Programs by rows and columns, the rows of a map of the shape ``over``, and what is compiled in."""
    _, channels, height, width = x.shape
    block = min(triton.next_power_of_2(channels), COLUMNS)
    rows = over.numel() // channels
    sizes = {"C": channels, "H": height, "W": width, "BLOCK_R": TILE // block, "BLOCK_C": block, "num_warps": WARPS}
    return (triton.cdiv(rows, TILE // block), triton.cdiv(channels, block)), rows, sizes


# The row count changes with every batch: compiled in is neither it nor what divides it.
@triton.jit(do_not_specialize=["rows"])
def _attend_forward(
    x, weights, y, rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at, inside, squashed = _squashed(weights, r, c, rows, C, H, W)
    value = squashed * tl.load(x + at, inside, 0).to(tl.float32)
    tl.store(y + at, value.to(y.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["rows"])
def _attend_backward(
    x, weights, dy, dx, d_interpolated, rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at, inside, squashed = _squashed(weights, r, c, rows, C, H, W)
    value = tl.load(x + at, inside, 0).to(tl.float32)
    gradient = squashed * tl.load(dy + at, inside, 0).to(tl.float32)
    tl.store(dx + at, gradient.to(dx.dtype.element_ty), inside)
    gradient *= (1 - squashed) * value
    tl.store(d_interpolated + at, gradient.to(d_interpolated.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["rows"])
def _attend_gather(
    d_interpolated, d_weights, rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """A place has a share in four positions along an even side, and in at most five along an odd one."""
    half_h: tl.constexpr = (H + 1) // 2
    half_w: tl.constexpr = (W + 1) // 2
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image, i, j = position(tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R), rows, half_h, half_w)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for down in tl.static_range(4 + H % 2):
        for across in tl.static_range(4 + W % 2):
            line, column = 2 * i - 1 - H % 2 + down, 2 * j - 1 - W % 2 + across
            share = _share(line, i, H) * _share(column, j, W)
            at, inside = places(image, line, column, c, C, H, W)
            total += share[:, None] * tl.load(d_interpolated + at, inside, 0).to(tl.float32)
    at, inside = places(image, i, j, c, C, half_h, half_w)
    tl.store(d_weights + at, total.to(d_weights.dtype.element_ty), inside)


@triton.jit
def _squashed(weights, r, c, rows, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """Where the channels of rows lie in the map, whether they are inside, and the sigmoid of the weights there."""
    image, i, j = position(r, rows, H, W)
    at, inside = places(image, i, j, c, C, H, W)
    upper, lower, down = _between(i, H)
    top = _along(weights, image, upper, j, c, inside, C, H, W)
    bottom = _along(weights, image, lower, j, c, inside, C, H, W)
    return at, inside, tl.sigmoid(top + down[:, None] * (bottom - top))


@triton.jit
def _along(weights, image, line, j, c, inside, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """The weights of a line, interpolated at columns of the map."""
    left, right, across = _between(j, W)
    at, _ = places(image, line, left, c, C, (H + 1) // 2, (W + 1) // 2)
    first = tl.load(weights + at, inside, 0).to(tl.float32)
    at, _ = places(image, line, right, c, C, (H + 1) // 2, (W + 1) // 2)
    second = tl.load(weights + at, inside, 0).to(tl.float32)
    return first + across[:, None] * (second - first)


@triton.jit
def _between(at, SIZE: tl.constexpr):
    """The two places of the weights that a position lies between, and how far it is on the way, from 0 to 1."""
    half: tl.constexpr = (SIZE + 1) // 2
    exact = tl.maximum((2 * at + 1) * half - SIZE, 0)  # (at + 1/2) half / SIZE - 1/2, times 2 SIZE
    first = exact // (2 * SIZE)
    return first, tl.minimum(first + 1, half - 1), (exact % (2 * SIZE)).to(tl.float32) / (2 * SIZE)


@triton.jit
def _share(at, place, SIZE: tl.constexpr):
    """That a place of the weights has in a position."""
    first, second, way = _between(at, SIZE)
    return tl.where(first == place, 1 - way, 0) + tl.where(second == place, way, 0)
