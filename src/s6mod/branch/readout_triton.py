"""``readout`` in one Triton kernel forwards and one backwards, in float32.

What is computed is defined by ``plain_readout`` in ``readout``, which imports this module where there is Triton. A
program takes one sample, a block of positions at a time. With x for y before the weight w and the bias b of its
normalisation, the mean over positions is m = (w A + b S) / L, where A is the sum of silu(Z) x and S that of silu(Z).
A and S are kept: backwards they give the gradients of w and b and, with them, that of m, before any position is read.
What samples contribute to w and b is summed afterwards, always in the same order, so that results are the same bits
every time.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.branch.losses import EPSILON
from s6mod.maps_triton import evenly_spaced

TILE = 4096  # numbers in a block of positions: a sample of L = 16 and d = 256
TILES = 8  # that a program goes through, at the most
WARPS = 8


def suits(y: Tensor, Z: Tensor, norm_weight: Tensor, norm_bias: Tensor) -> bool:
    """Whether kernels exist: float32, tensors that fit together, and samples of no more than a few tiles."""
    if y.dim() != 3 or Z.shape != y.shape or any(each.shape != y.shape[2:] for each in (norm_weight, norm_bias)):
        return False
    batch, positions, d = y.shape
    few = 0 < d <= TILE and 0 < positions <= TILES * _block(positions, d)[0]
    return few and batch > 0 and all(each.dtype == torch.float32 for each in (y, Z, norm_weight, norm_bias))


def readout(y: Tensor, Z: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float) -> Tensor:
    """As ``plain_readout``; what is not contiguous is copied, but not a Z whose rows are evenly spaced."""
    mu: Tensor = _Readout.apply(y.contiguous(), Z, norm_weight.contiguous(), norm_bias.contiguous(), eps)
    return mu


class _Readout(torch.autograd.Function):
    """Keeps what it is given, and A and S."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        y, Z, norm_weight, norm_bias, eps = given
        Z, z_stride = evenly_spaced(Z)
        tensors = y, Z, norm_weight, norm_bias
        batch, _, d = y.shape
        mu: Tensor = y.new_empty(batch, d)
        sums = y.new_empty(batch, 2, d)
        ctx.sizes = _sizes(y, z_stride, eps)
        with torch.cuda.device_of(y):  # Triton launches on the current device
            _forward_kernel[(batch,)](*tensors, mu, sums, **ctx.sizes)
        ctx.save_for_backward(*tensors, sums)
        return mu

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, sums = ctx.saved_tensors
        y, *_ = tensors
        # Z is laid out otherwise, and its gradient as y.
        grad_y, grad_Z, shares = torch.empty_like(y), torch.empty_like(y), torch.empty_like(sums)
        with torch.cuda.device_of(y):
            _backward_kernel[(len(y),)](*tensors, sums, grad.contiguous(), grad_y, grad_Z, shares, **ctx.sizes)
        grad_weight, grad_bias = shares.sum(0)  # both at once
        return grad_y, grad_Z, grad_weight, grad_bias, None


def _block(positions: int, d: int) -> tuple[int, int]:
    """Positions and channels that a program takes at once."""
    block_d = triton.next_power_of_2(d)
    return min(triton.next_power_of_2(positions), TILE // block_d), block_d


def _sizes(y: Tensor, z_stride: int, eps: float) -> dict[str, Any]:
    """What is compiled in: all but the batch size, which the kernels need not know."""
    _, positions, d = y.shape
    block_l, block_d = _block(positions, d)
    sizes = {"L": positions, "D": d, "BLOCK_L": block_l, "BLOCK_D": block_d, "Z_STRIDE": z_stride}
    return sizes | {"EPS": eps, "UNIT_EPS": EPSILON**2, "num_warps": WARPS}


@triton.jit
def _forward_kernel(
    y, Z, norm_weight, norm_bias, mu, sums,
    L: tl.constexpr, D: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_D: tl.constexpr, Z_STRIDE: tl.constexpr,
    EPS: tl.constexpr, UNIT_EPS: tl.constexpr,
):  # fmt: skip
    """A, S and m, and mu = m / sqrt(|m|^2 + UNIT_EPS)."""
    sample, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    A = tl.zeros([BLOCK_L, BLOCK_D], tl.float32)
    S = tl.zeros([BLOCK_L, BLOCK_D], tl.float32)
    for start in range(0, L, BLOCK_L):
        row, inside = _rows(sample, start, c, L, D, BLOCK_L)
        x, _ = _normalised(y, row, c, inside, D, EPS)
        z = tl.load(Z + row * Z_STRIDE + c[None, :], inside, 0)
        silu = z * tl.sigmoid(z)  # 0 outside
        A += silu * x
        S += silu
    total_A, total_S = tl.sum(A, 0), tl.sum(S, 0)
    w, b = tl.load(norm_weight + c, c < D, 0), tl.load(norm_bias + c, c < D, 0)
    m, scale = _mean(w, b, total_A, total_S, L, UNIT_EPS)
    tl.store(mu + sample * D + c, m * scale, c < D)
    tl.store(sums + sample * 2 * D + c, total_A, c < D)
    tl.store(sums + (sample * 2 + 1) * D + c, total_S, c < D)


@triton.jit
def _backward_kernel(
    y, Z, norm_weight, norm_bias, sums, grad, grad_y, grad_Z, shares,
    L: tl.constexpr, D: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_D: tl.constexpr, Z_STRIDE: tl.constexpr,
    EPS: tl.constexpr, UNIT_EPS: tl.constexpr,
):  # fmt: skip
    """``shares`` (B, 2, D) are what the sample contributes to the gradients of weight and bias."""
    sample, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    w, b = tl.load(norm_weight + c, c < D, 0), tl.load(norm_bias + c, c < D, 0)
    A = tl.load(sums + sample * 2 * D + c, c < D, 0)
    S = tl.load(sums + (sample * 2 + 1) * D + c, c < D, 0)
    m, scale = _mean(w, b, A, S, L, UNIT_EPS)
    unit = m * scale
    g = tl.load(grad + sample * D + c, c < D, 0)
    g = scale * (g - unit * tl.sum(unit * g, 0)) / L  # of the sum over positions
    tl.store(shares + sample * 2 * D + c, g * A, c < D)
    tl.store(shares + (sample * 2 + 1) * D + c, g * S, c < D)
    for start in range(0, L, BLOCK_L):
        row, inside = _rows(sample, start, c, L, D, BLOCK_L)
        x, inverse = _normalised(y, row, c, inside, D, EPS)
        z = tl.load(Z + row * Z_STRIDE + c[None, :], inside, 0)
        gate = tl.sigmoid(z)
        grad_silu = g[None, :] * (w[None, :] * x + b[None, :])
        tl.store(grad_Z + row * D + c[None, :], grad_silu * gate * (1 + z * (1 - gate)), inside)
        grad_x = (g * w)[None, :] * z * gate  # 0 outside
        along_ones = tl.sum(grad_x, axis=1, keep_dims=True) / D
        along_x = tl.sum(grad_x * x, axis=1, keep_dims=True) / D
        tl.store(grad_y + row * D + c[None, :], inverse * (grad_x - along_ones - x * along_x), inside)


@triton.jit
def _rows(sample, start, c, L: tl.constexpr, D: tl.constexpr, BLOCK_L: tl.constexpr):
    """The rows (BLOCK_L, 1) from position ``start`` of the sample on, and which of their channels are inside."""
    position = start + tl.arange(0, BLOCK_L)[:, None]
    return sample * L + position, (position < L) & (c < D)[None, :]


@triton.jit
def _normalised(y, row, c, inside, D: tl.constexpr, EPS: tl.constexpr):
    """y less its mean over channels and divided by its deviation, 0 outside; one divided by the deviation."""
    value = tl.load(y + row * D + c[None, :], inside, 0)
    mean = tl.sum(value, axis=1, keep_dims=True) / D
    gap = tl.where(inside, value - mean, 0)
    inverse = 1 / tl.sqrt(tl.sum(gap * gap, axis=1, keep_dims=True) / D + EPS)
    return gap * inverse, inverse


@triton.jit
def _mean(w, b, A, S, L: tl.constexpr, UNIT_EPS: tl.constexpr):
    """m, and what makes it a vector of length 1."""
    m = (w * A + b * S) / L
    return m, 1 / tl.sqrt(tl.sum(m * m, 0) + UNIT_EPS)
