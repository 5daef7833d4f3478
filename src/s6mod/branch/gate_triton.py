"""``gate_weights`` in one Triton kernel forwards and one backwards, in float32.

What is computed is defined by ``plain_gate_weights`` in ``mixture``, which imports this module where there is Triton. A
program takes a few samples. Nothing is sorted: the place of a logit is the number of those that come before it.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

MOST_PATTERNS = 32  # each logit is compared with each
TILE = 256  # numbers in the registers of a program
WARPS = 2


def suits(logits: Tensor, count: Tensor) -> bool:
    """Whether kernels exist: float32, a count for each row, and patterns that are few."""
    batch, patterns = logits.shape
    fits = logits.dtype == torch.float32 and count.shape == (batch,)
    return fits and batch > 0 and patterns <= MOST_PATTERNS


def gate_weights(logits: Tensor, count: Tensor, leaky: bool) -> Tensor:
    """As ``plain_gate_weights``; what is not contiguous is copied."""
    weights: Tensor = _GateWeights.apply(logits.contiguous(), count.contiguous(), leaky)
    return weights


class _GateWeights(torch.autograd.Function):
    """Keeps the weights and which of them belong to dropped patterns: a leaky gate's are not 0."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        logits, count, leaky = given
        weights, dropped = torch.empty_like(logits), torch.empty_like(logits, dtype=torch.bool)
        grid, sizes = _sizes(logits)
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _forward_kernel[grid](logits, count, weights, dropped, len(logits), LEAKY=leaky, **sizes)
        ctx.save_for_backward(weights, dropped)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, dropped = ctx.saved_tensors
        grad_logits = torch.empty_like(weights)
        grid, sizes = _sizes(weights)
        with torch.cuda.device_of(weights):
            _backward_kernel[grid](weights, dropped, grad.contiguous(), grad_logits, len(weights), **sizes)
        return grad_logits, None, None


def _sizes(logits: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """Programs, and what is compiled in: the patterns, the block of samples and patterns that a program takes."""
    batch, patterns = logits.shape
    block_e = triton.next_power_of_2(patterns)
    block_b = TILE // block_e
    return (triton.cdiv(batch, block_b),), {"E": patterns, "BLOCK_B": block_b, "BLOCK_E": block_e, "num_warps": WARPS}


# The batch size changes from step to step: compiled in is neither it nor what divides it.
@triton.jit(do_not_specialize=["batch"])
def _forward_kernel(
    logits, count, weights, dropped, batch,
    LEAKY: tl.constexpr, E: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """The softmax of the ``count`` largest logits; of equal ones the first counts as larger."""
    b, e = _block(BLOCK_B, BLOCK_E)
    inside = (b < batch) & (e < E)
    logit = tl.load(logits + b * E + e, inside, 0)
    place = tl.zeros([BLOCK_B, BLOCK_E], tl.int32)
    for other in tl.static_range(E):
        value = tl.load(logits + b * E + other, b < batch, 0)  # (BLOCK_B, 1)
        place += ((value > logit) | ((value == logit) & (other < e))).to(tl.int32)
    drop = place >= tl.load(count + b, b < batch, 1)
    logit = tl.where(drop, 0.0 if LEAKY else -float("inf"), logit)
    logit = tl.where(e < E, logit, -float("inf"))
    power = tl.exp(logit - tl.max(logit, axis=1, keep_dims=True))
    tl.store(weights + b * E + e, power / tl.sum(power, axis=1, keep_dims=True), inside)
    tl.store(dropped + b * E + e, drop, inside)


@triton.jit(do_not_specialize=["batch"])
def _backward_kernel(
    weights, dropped, grad, grad_logits, batch, E: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr
):
    """w_i (g_i - sum_j w_j g_j), g being the gradient of w; 0 for dropped patterns."""
    b, e = _block(BLOCK_B, BLOCK_E)
    inside = (b < batch) & (e < E)
    weight, gradient = tl.load(weights + b * E + e, inside, 0), tl.load(grad + b * E + e, inside, 0)
    mean = tl.sum(weight * gradient, axis=1, keep_dims=True)
    drop = tl.load(dropped + b * E + e, inside, 1) != 0
    tl.store(grad_logits + b * E + e, tl.where(drop, 0, weight * (gradient - mean)), inside)


@triton.jit
def _block(BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr):
    """The samples (BLOCK_B, 1) and patterns (1, BLOCK_E) of this program."""
    b = tl.program_id(0).to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)
    return b[:, None], tl.arange(0, BLOCK_E)[None, :]
