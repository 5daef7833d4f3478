"""The terms of ``losses`` but L_Cont, each in one Triton kernel forwards and one backwards, in float32.

What is computed is defined by the plain functions in ``losses``, which imports this module where there is Triton.
Forwards one program goes through all rows, a block at a time, so that one kernel makes the sum, always in the same
order. That would take long for very many rows: they are left to the plain functions. Backwards a program takes a few.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 8192  # numbers in the registers of the program that sums
GRADIENT_TILE = 1024  # and of those that find gradients
ROWS = 128  # of a tile, at the most
TILES = 16  # that the program goes through, at the most
WARPS = 16  # of the program that sums


def suits(*given: Tensor) -> bool:
    """Whether kernels exist: float32 tables (rows, columns) of one shape, and no more than a few tiles of it."""
    first = given[0]
    if first.dim() != 2 or any(table.dtype != torch.float32 or table.shape != first.shape for table in given):
        return False
    rows, columns = first.shape
    return 0 < columns <= GRADIENT_TILE and 0 < rows <= TILES * _block(columns, TILE)["BLOCK_R"]


def dot_regression(cosines: Tensor, q: Tensor) -> Tensor:
    """As ``plain_dot_regression``, with a gradient for the cosines alone; what is not contiguous is copied."""
    return _term(_dot_regression, _dot_regression_gradient, 1, cosines, q)


def divergence(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """As ``plain_divergence``; what is not contiguous is copied."""
    return _term(_divergence, _divergence_gradients, 2, p_logits, q_logits)


def z_loss(gate_logits: Tensor) -> Tensor:
    """As ``plain_z_loss``; what is not contiguous is copied."""
    return _term(_z_loss, _z_loss_gradient, 1, gate_logits)


def _term(kernel: Any, gradient_kernel: Any, number: int, *tables: Tensor) -> Tensor:
    """What ``kernel`` finds in ``tables``, the first ``number`` of which have gradients."""
    term: Tensor = _Term.apply(kernel, gradient_kernel, number, *(table.contiguous() for table in tables))
    return term


class _Term(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        kernel, ctx.gradient_kernel, ctx.number, *tables = given
        ctx.save_for_backward(*tables)
        return _sum(kernel, tables)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # All of them, even if one is not wanted: they come out of the same numbers, and autograd drops it.
        gradients = _gradients(ctx.gradient_kernel, ctx.saved_tensors, grad, ctx.number)
        return None, None, None, *gradients, *[None] * (len(ctx.saved_tensors) - ctx.number)


def _sum(kernel: Any, tables: Sequence[Tensor]) -> Tensor:
    """The term that ``kernel`` finds in ``tables``, a number on their device."""
    rows, columns = tables[0].shape
    term = tables[0].new_empty(())
    with torch.cuda.device_of(term):  # Triton launches on the current device
        kernel[(1,)](*tables, term, rows, **_block(columns, TILE), num_warps=WARPS)
    return term


def _gradients(kernel: Any, tables: Sequence[Tensor], grad: Tensor, number: int) -> tuple[Tensor, ...]:
    """Gradients of the first ``number`` tables; ``grad``, that of the term, is read on the device."""
    rows, columns = tables[0].shape
    gradients = tuple(torch.empty_like(table) for table in tables[:number])
    block = _block(columns, GRADIENT_TILE)
    with torch.cuda.device_of(grad):
        kernel[(triton.cdiv(rows, block["BLOCK_R"]),)](*tables, grad, *gradients, rows, **block)
    return gradients


def _block(columns: int, tile: int) -> dict[str, int]:
    """What is compiled in: the columns of the tables, rows and columns of the block that a program takes at once."""
    block = triton.next_power_of_2(columns)
    return {"C": columns, "BLOCK_R": min(tile // block, ROWS), "BLOCK_C": block}


# --- kernels --------------------------------------------------------------------------------------------------
#
# Row counts change from step to step: compiled in are neither they nor what divides them.


@triton.jit(do_not_specialize=["rows"])
def _dot_regression(cosines, q, term, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """The mean over rows of 0.5 q (cosine - 1)^2, summed over columns."""
    total = tl.zeros([BLOCK_R], tl.float32)
    start = tl.program_id(0) * BLOCK_R  # 0: there is one program
    while start < rows:  # earlier interpreters cannot range over an argument
        at, inside, _, _ = _places(start, rows, C, BLOCK_R, BLOCK_C)
        gap = tl.load(cosines + at, inside, 1) - 1
        total += tl.sum(0.5 * tl.load(q + at, inside, 0) * gap * gap, 1)
        start += BLOCK_R
    tl.store(term, tl.sum(total, 0) / rows)


@triton.jit(do_not_specialize=["rows"])
def _dot_regression_gradient(
    cosines, q, grad, grad_cosines, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    """q (cosine - 1)."""
    at, inside, _, _ = _places(tl.program_id(0) * BLOCK_R, rows, C, BLOCK_R, BLOCK_C)
    gap = tl.load(cosines + at, inside, 1) - 1
    tl.store(grad_cosines + at, tl.load(grad) / rows * tl.load(q + at, inside, 0) * gap, inside)


@triton.jit(do_not_specialize=["rows"])
def _divergence(p_logits, q_logits, term, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """The mean over rows of KL(P || Q)."""
    total = tl.zeros([BLOCK_R], tl.float32)
    start = tl.program_id(0) * BLOCK_R  # 0: there is one program
    while start < rows:  # earlier interpreters cannot range over an argument
        at, inside, column, _ = _places(start, rows, C, BLOCK_R, BLOCK_C)
        p, _, gap = _softmaxes(p_logits, q_logits, at, inside, column, C)
        total += tl.sum(p * gap, 1)  # rows below the last are alike in P and Q: 0
        start += BLOCK_R
    tl.store(term, tl.sum(total, 0) / rows)


@triton.jit(do_not_specialize=["rows"])
def _divergence_gradients(
    p_logits, q_logits, grad, grad_p, grad_q, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    """P (log P - log Q - KL(P || Q)) for the logits of P, Q - P for those of Q."""
    at, inside, column, _ = _places(tl.program_id(0) * BLOCK_R, rows, C, BLOCK_R, BLOCK_C)
    p, q, gap = _softmaxes(p_logits, q_logits, at, inside, column, C)
    scale = tl.load(grad) / rows
    tl.store(grad_p + at, scale * p * (gap - tl.sum(p * gap, axis=1, keep_dims=True)), inside)
    tl.store(grad_q + at, scale * (q - p), inside)


@triton.jit(do_not_specialize=["rows"])
def _z_loss(logits, term, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """The mean over rows of (log sum exp)^2."""
    total = tl.zeros([BLOCK_R, 1], tl.float32)
    start = tl.program_id(0) * BLOCK_R  # 0: there is one program
    while start < rows:  # earlier interpreters cannot range over an argument
        at, inside, column, row = _places(start, rows, C, BLOCK_R, BLOCK_C)
        _, _, log_sum = _softmax(logits, at, inside, column, C)
        total += tl.where(row < rows, log_sum * log_sum, 0)
        start += BLOCK_R
    tl.store(term, tl.sum(tl.sum(total, 1), 0) / rows)


@triton.jit(do_not_specialize=["rows"])
def _z_loss_gradient(logits, grad, grad_logits, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """2 log sum exp, times the softmax."""
    at, inside, column, _ = _places(tl.program_id(0) * BLOCK_R, rows, C, BLOCK_R, BLOCK_C)
    softmax, _, log_sum = _softmax(logits, at, inside, column, C)
    tl.store(grad_logits + at, tl.load(grad) / rows * 2 * log_sum * softmax, inside)


@triton.jit
def _places(start, rows, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Where the block from row ``start`` on lies in memory, whether it is inside the table, its columns and rows."""
    row = start + tl.arange(0, BLOCK_R)[:, None]
    column = tl.arange(0, BLOCK_C)[None, :]
    return row * C + column, (row < rows) & (column < C), column, row


@triton.jit
def _softmaxes(p_logits, q_logits, at, inside, column, C: tl.constexpr):
    """P, Q and log P - log Q of each row."""
    p, log_p, _ = _softmax(p_logits, at, inside, column, C)
    q, log_q, _ = _softmax(q_logits, at, inside, column, C)
    return p, q, log_p - log_q


@triton.jit
def _softmax(logits, at, inside, column, C: tl.constexpr):
    """Of each row the softmax, its logarithm and log sum exp.

    Rows below the last count as zeros; in columns beyond the last both softmax and logarithm are 0.
    """
    value = tl.where(column < C, tl.load(logits + at, inside, 0), -float("inf"))
    largest = tl.max(value, axis=1, keep_dims=True)
    power = tl.exp(value - largest)
    total = tl.sum(power, axis=1, keep_dims=True)
    logarithm = tl.where(column < C, value - largest - tl.log(total), 0)
    return power / total, logarithm, largest + tl.log(total)
