"""The gate in one Triton kernel forwards and one backwards, and the means that are noted of it in one, in float32.

What is computed is defined by ``plain_gate``, ``plain_gate_weights`` and ``plain_note_means`` in ``mixture``, which
imports this module where there is Triton. A program takes one sample, or a few backwards, where it sums what they add
to the gradients of the linear map; these sums are added in a fixed order. Nothing is sorted: the place of a logit is
the number of those that come before it.
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
MOST_CHANNELS = 256  # the linear map lies in the registers of a program
TILE = 4096  # numbers of X^ that a program takes at once
PROGRAMS = 132  # that share the samples backwards, at the most: one for each of an H200's processors
ROWS = 1024  # that a program takes the mean of at once
MOST_ROWS = 16 * ROWS
WARPS = 4


def suits(X_hat: Tensor, weight: Tensor, bias: Tensor, count: Tensor) -> bool:
    """Whether kernels exist for the whole gate: float32, a count for each sample, and a linear map that is small."""
    if X_hat.dim() != 3 or not _float32(X_hat, weight, bias):
        return False
    batch, positions, channels = X_hat.shape
    patterns = len(bias)
    fits = count.shape == (batch,) and weight.shape == (patterns, channels)
    return fits and batch > 0 and positions > 0 and patterns <= MOST_PATTERNS and channels <= MOST_CHANNELS


def suits_weights(logits: Tensor, count: Tensor) -> bool:
    """Whether kernels exist for the weights: float32, a count for each row, and patterns that are few."""
    batch, patterns = logits.shape
    return _float32(logits) and count.shape == (batch,) and batch > 0 and patterns <= MOST_PATTERNS


def suits_means(count: Tensor, weights: Tensor, mean_count: Tensor, mean_weights: Tensor) -> bool:
    """Whether a kernel exists for the means: float32, and rows that are not very many."""
    fits = count.shape == weights.shape[:1] and mean_count.dim() == 0 and mean_weights.shape == weights.shape[1:]
    return fits and 0 < len(weights) <= MOST_ROWS and _float32(count, weights, mean_count, mean_weights)


def _float32(*tensors: Tensor) -> bool:
    return all(tensor.dtype == torch.float32 for tensor in tensors)


def gate(X_hat: Tensor, weight: Tensor, bias: Tensor, count: Tensor, leaky: bool) -> tuple[Tensor, Tensor]:
    """As ``plain_gate``; what is not contiguous is copied."""
    given = (tensor.contiguous() for tensor in (X_hat, weight, bias, count))
    logits, weights = _Gate.apply(*given, leaky)
    return logits, weights


def gate_weights(logits: Tensor, count: Tensor, leaky: bool) -> Tensor:
    """As ``plain_gate_weights``; what is not contiguous is copied."""
    weights: Tensor = _GateWeights.apply(logits.contiguous(), count.contiguous(), leaky)
    return weights


def note_means(count: Tensor, weights: Tensor, mean_count: Tensor, mean_weights: Tensor) -> None:
    """As ``plain_note_means``; what is not contiguous is copied."""
    batch, patterns = weights.shape
    with torch.cuda.device_of(weights):  # Triton launches on the current device
        _means_kernel[(patterns + 1,)](
            count.contiguous(), weights.contiguous(), mean_count, mean_weights, batch, E=patterns, BLOCK=ROWS
        )


class _Gate(torch.autograd.Function):
    """Keeps the means over positions, the weights and which of them belong to dropped patterns."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        X_hat, weight, bias, count, leaky = given
        batch, positions, channels = X_hat.shape
        logits, mean = X_hat.new_empty(batch, len(weight)), X_hat.new_empty(batch, channels)
        weights, dropped = torch.empty_like(logits), torch.empty_like(logits, dtype=torch.bool)
        sizes = _sizes(positions, weight)
        with torch.cuda.device_of(X_hat):
            _gate_forward[(batch,)](
                X_hat, weight, bias, count, logits, weights, dropped, mean, LEAKY=leaky, **sizes, num_warps=WARPS
            )
        ctx.save_for_backward(weight, mean, weights, dropped)
        ctx.positions = positions
        ctx.set_materialize_grads(False)  # zeros need no memory, nor kernels that fill it
        return logits, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, mean, weights, dropped = ctx.saved_tensors
        (batch, channels), patterns = mean.shape, len(weight)
        chunk = triton.cdiv(batch, PROGRAMS)
        programs = triton.cdiv(batch, chunk)
        grad_X_hat = mean.new_empty(batch, ctx.positions, channels)
        sums = mean.new_empty(programs, patterns * (channels + 1))  # for the weight and, behind it, the bias
        grad_logits, grad_weights = (None if grad is None else grad.contiguous() for grad in grads)
        with torch.cuda.device_of(mean):
            _gate_backward[(programs,)](
                weight, mean, weights, dropped, grad_logits, grad_weights, grad_X_hat, sums, batch, chunk,
                **_sizes(ctx.positions, weight), num_warps=WARPS,
            )  # fmt: skip
        total = sums.sum(0)
        grad_weight, grad_bias = total[: weight.numel()].view_as(weight), total[weight.numel() :]
        return grad_X_hat, grad_weight, grad_bias, None, None


class _GateWeights(torch.autograd.Function):
    """Keeps the weights and which of them belong to dropped patterns: a leaky gate's are not 0."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        logits, count, leaky = given
        batch, patterns = logits.shape
        weights, dropped = torch.empty_like(logits), torch.empty_like(logits, dtype=torch.bool)
        with torch.cuda.device_of(logits):
            _weights_forward[(batch,)](
                logits, count, weights, dropped,
                LEAKY=leaky, E=patterns, BLOCK_E=triton.next_power_of_2(patterns), num_warps=1,
            )  # fmt: skip
        ctx.save_for_backward(weights, dropped)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, dropped = ctx.saved_tensors
        batch, patterns = weights.shape
        grad_logits = torch.empty_like(weights)
        with torch.cuda.device_of(weights):
            _weights_backward[(batch,)](
                weights, dropped, grad.contiguous(), grad_logits,
                E=patterns, BLOCK_E=triton.next_power_of_2(patterns), num_warps=1,
            )  # fmt: skip
        return grad_logits, None, None


def _sizes(positions: int, weight: Tensor) -> dict[str, int]:
    """What is compiled in: positions, channels and patterns, and the block of each that a program takes at once."""
    patterns, channels = weight.shape
    block_d = triton.next_power_of_2(channels)
    block_l = min(triton.next_power_of_2(positions), TILE // block_d)
    blocks = {"BLOCK_L": block_l, "BLOCK_D": block_d, "BLOCK_E": triton.next_power_of_2(patterns)}
    return {"L": positions, "D": channels, "E": patterns, **blocks}


# --- kernels --------------------------------------------------------------------------------------------------
#
# The batch size changes from step to step: compiled in is neither it nor what divides it.


@triton.jit
def _gate_forward(
    x, weight, bias, count, logits, weights, dropped, mean,
    LEAKY: tl.constexpr, L: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Of one sample the mean over positions, the linear map of it, and the weights."""
    sample = tl.program_id(0).to(tl.int64)
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    w = _linear_map(weight, d, e, D, E)
    total = tl.zeros([BLOCK_L, BLOCK_D], tl.float32)
    for start in range(0, L, BLOCK_L):
        at, inside = _positions(start, d, L, D, BLOCK_L)
        total += tl.load(x + sample * L * D + at, inside, 0)
    average = tl.sum(total, 0) / L
    tl.store(mean + sample * D + d, average, d < D)
    logit = tl.sum(w * average[None, :], 1) + tl.load(bias + e, e < E, 0)
    tl.store(logits + sample * E + e, logit, e < E)
    tl.debug_barrier()  # what one thread has stored another may load
    _store_weights(logits, count, weights, dropped, sample, e, LEAKY, E)


@triton.jit(do_not_specialize=["batch", "chunk"])
def _gate_backward(
    weight, mean, weights, dropped, grad_logits, grad_weights, grad_x, sums, batch, chunk,
    L: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """With g, the gradient of the logits: W^T g / L for each position, and sums over samples of g mean^T and g."""
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    w = _linear_map(weight, d, e, D, E)
    dw, db = tl.zeros([BLOCK_E, BLOCK_D], tl.float32), tl.zeros([BLOCK_E], tl.float32)
    sample = tl.program_id(0).to(tl.int64) * chunk
    end = tl.minimum(sample + chunk, batch)
    while sample < end:
        g = tl.zeros([BLOCK_E], tl.float32)
        if grad_weights is not None:
            g += _logit_gradient(weights, dropped, grad_weights, sample, e, E)
        if grad_logits is not None:
            g += tl.load(grad_logits + sample * E + e, e < E, 0)
        average = tl.load(mean + sample * D + d, d < D, 0)
        dw += g[:, None] * average[None, :]
        db += g
        dx = tl.broadcast_to((tl.sum(w * g[:, None], 0) / L)[None, :], [BLOCK_L, BLOCK_D])
        for start in range(0, L, BLOCK_L):
            at, inside = _positions(start, d, L, D, BLOCK_L)
            tl.store(grad_x + sample * L * D + at, dx, inside)
        sample += 1
    own = sums + tl.program_id(0).to(tl.int64) * (E * D + E)
    tl.store(own + e[:, None] * D + d[None, :], dw, (e < E)[:, None] & (d < D)[None, :])
    tl.store(own + E * D + e, db, e < E)


@triton.jit
def _weights_forward(logits, count, weights, dropped, LEAKY: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr):
    sample, e = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_E)
    _store_weights(logits, count, weights, dropped, sample, e, LEAKY, E)


@triton.jit
def _weights_backward(weights, dropped, grad, grad_logits, E: tl.constexpr, BLOCK_E: tl.constexpr):
    sample, e = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_E)
    gradient = _logit_gradient(weights, dropped, grad, sample, e, E)
    tl.store(grad_logits + sample * E + e, gradient, e < E)


@triton.jit(do_not_specialize=["batch"])
def _means_kernel(count, weights, mean_count, mean_weights, batch, E: tl.constexpr, BLOCK: tl.constexpr):
    """A program takes the mean of the weights of one pattern, or, the last, that of the counts."""
    pattern = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    start = 0
    while start < batch:  # earlier interpreters cannot range over an argument
        row = start + tl.arange(0, BLOCK)
        if pattern < E:
            total += tl.load(weights + row * E + pattern, row < batch, 0)
        else:
            total += tl.load(count + row, row < batch, 0)
        start += BLOCK
    mean = tl.sum(total, 0) / batch
    if pattern < E:
        tl.store(mean_weights + pattern, mean)
    else:
        tl.store(mean_count, mean)


@triton.jit
def _linear_map(weight, d, e, D: tl.constexpr, E: tl.constexpr):
    """W (BLOCK_E, BLOCK_D), 0 beyond its edges."""
    return tl.load(weight + e[:, None] * D + d[None, :], (e < E)[:, None] & (d < D)[None, :], 0)


@triton.jit
def _positions(start, d, L: tl.constexpr, D: tl.constexpr, BLOCK_L: tl.constexpr):
    """Where the block from position ``start`` on lies in a sample's memory, and whether it is inside."""
    position = start + tl.arange(0, BLOCK_L)
    return position[:, None] * D + d[None, :], (position < L)[:, None] & (d < D)[None, :]


@triton.jit
def _store_weights(logits, count, weights, dropped, sample, e, LEAKY: tl.constexpr, E: tl.constexpr):
    """The softmax of the ``count`` largest logits of a sample; of equal ones the first counts as larger.

    Logits come from memory: two threads may compute one that differs in its last bit, which would then precede itself.
    """
    logit = tl.load(logits + sample * E + e, e < E, -float("inf"))
    mine, other = logit[:, None], logit[None, :]
    before = (other > mine) | ((other == mine) & (e[None, :] < e[:, None]))
    drop = tl.sum(before.to(tl.int32), 1) >= tl.load(count + sample)
    logit = tl.where(drop & (e < E), 0.0 if LEAKY else -float("inf"), logit)
    power = tl.exp(logit - tl.max(logit, 0))
    tl.store(weights + sample * E + e, power / tl.sum(power, 0), e < E)
    tl.store(dropped + sample * E + e, drop, e < E)


@triton.jit
def _logit_gradient(weights, dropped, grad, sample, e, E: tl.constexpr):
    """w_i (g_i - sum_j w_j g_j), g being the gradient of w; 0 for dropped patterns."""
    at = sample * E + e
    weight, gradient = tl.load(weights + at, e < E, 0), tl.load(grad + at, e < E, 0)
    drop = tl.load(dropped + at, e < E, 1) != 0
    return tl.where(drop, 0, weight * (gradient - tl.sum(weight * gradient, 0)))
