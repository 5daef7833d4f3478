"""The selective scan and the four orders in which it reads a map (SS2D).

``directional_scan`` is the one to use; on a GPU it runs the kernels of ``scan_triton``. ``plain_directional_scan`` says
what it computes, and ``selective_scan_reference`` is the recurrence as it is written down and the tests' oracle.
Positions are row-major and come before channels, (B, L, K, n), so that every projection is one matrix product.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from s6mod.kernels import kernels_for

NUM_DIRECTIONS = 4


def directional_scan(
    u: Tensor,
    delta: Tensor,
    BC: Tensor,
    dt_proj: Tensor,
    dt_bias: Tensor,
    A_log: Tensor,
    D: Tensor,
    map_size: tuple[int, int],
) -> Tensor:
    """The scans of a map in its four directions, summed with every position in its place: y (B, L, d).

    u (B, L, d); delta (B, L, K, R); BC (B, L, K, 2 N), B and C side by side; dt_proj W_dt (K, d, R); dt_bias (K, d);
    A_log (K, d, N); D (K, d). A direction's step sizes are softplus(W_dt delta + b_dt), its A is -exp(A_log).
    """
    kernels = kernels_for(u, "s6mod.branch.scan_triton") if u.dtype == torch.float32 else None
    scan = plain_directional_scan if kernels is None else kernels.directional_scan
    y: Tensor = scan(u, delta, BC, dt_proj, dt_bias, A_log, D, map_size)
    return y


def plain_directional_scan(
    u: Tensor,
    delta: Tensor,
    BC: Tensor,
    dt_proj: Tensor,
    dt_bias: Tensor,
    A_log: Tensor,
    D: Tensor,
    map_size: tuple[int, int],
) -> Tensor:
    """``directional_scan`` in PyTorch, for any device and floating type."""
    u = cross_scan(u.unsqueeze(2).expand(-1, -1, NUM_DIRECTIONS, -1), map_size)  # (B, L, K, d)
    B, C = cross_scan(BC, map_size).chunk(2, dim=-1)  # (B, L, K, N) each
    dt = F.softplus(torch.einsum("kdr,blkr->blkd", dt_proj, cross_scan(delta, map_size)) + dt_bias)
    return cross_merge(selective_scan(u, dt, -A_log.exp(), B, C, D), map_size)


# --- orders ---------------------------------------------------------------------------------------------------


def cross_scan(x: Tensor, map_size: tuple[int, int]) -> Tensor:
    """Positions (B, L, 4, n) as the directions meet them: by rows, the same backwards, by columns, backwards."""
    rows, rows_back, columns, columns_back = x.unbind(2)
    columns, columns_back = _transposed(columns, *map_size), _transposed(columns_back, *map_size)
    return torch.stack([rows, rows_back.flip(1), columns, columns_back.flip(1)], dim=2)


def cross_merge(y: Tensor, map_size: tuple[int, int]) -> Tensor:
    """Undo the four orders of ``cross_scan`` and sum: (B, L, 4, n) -> (B, L, n)."""
    rows, rows_back, columns, columns_back = y.unbind(2)
    height, width = map_size
    return rows + rows_back.flip(1) + _transposed(columns + columns_back.flip(1), width, height)


def _transposed(x: Tensor, height: int, width: int) -> Tensor:
    """The positions (B, L, n) of a map in the order of its transpose."""
    batch, _, n = x.shape
    return x.reshape(batch, height, width, n).transpose(1, 2).flatten(1, 2)


# --- recurrence -----------------------------------------------------------------------------------------------


def selective_scan_reference(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t ; y_t = C_t h_t + D u_t, step by step; see ``selective_scan``."""
    h = torch.zeros_like(u[:, 0, :, :, None] * A)  # (B, K, d, N)
    y = []
    for t in range(u.shape[1]):
        dt_t, u_t = dt[:, t, :, :, None], u[:, t, :, :, None]  # (B, K, d, 1)
        B_t, C_t = B[:, t, :, None], C[:, t, :, None]  # (B, K, 1, N)
        h = torch.exp(dt_t * A) * h + dt_t * B_t * u_t
        y.append((C_t * h).sum(-1) + D * u[:, t])
    return torch.stack(y, dim=1)


def selective_scan(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The scan of sequences of length L in all directions at once, y (B, L, K, d).

    u, dt (B, L, K, d); A (K, d, N); B, C (B, L, K, N); D (K, d).
    """
    y: Tensor = _TimeFirstScan.apply(u, dt, A, B, C, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return torch.addcmul(y, D, u)


class _TimeFirstScan(torch.autograd.Function):
    """The scan without D, with its backward pass written out.

    Time is the first axis, so that each step works on one contiguous block, and the d channels are the last, so
    that every product broadcasts along whole rows. The states are kept for the backward pass; exp(dt A), as large
    as they are, is made again. On a CPU this takes about half the time of autograd through the loop.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, keep: bool) -> Tensor:
        A = A.transpose(1, 2).contiguous()  # (K, N, d)
        dt_, x_, B_, C_ = _rows(dt), _rows(dt * u), _columns(B), _rows(C)
        h = x_[0] * B_[0]  # (B, K, N, d)
        states, y = [h], [C_[0] @ h]
        for t in range(1, len(x_)):
            h = torch.mul(dt_[t], A).exp_().mul_(h).addcmul_(x_[t], B_[t])
            y.append(C_[t] @ h)
            if keep:
                states.append(h)

        ctx.save_for_backward(u, dt, A, dt_, x_, B_, C_, *states)
        return _batch_first(torch.stack(y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, dt, A, dt_, x_, B_, C_, *h = ctx.saved_tensors
        grad_y = _rows(grad)
        grad_x, grad_dt = torch.empty_like(x_), torch.zeros_like(dt_)
        grad_B, grad_C = torch.empty_like(B_), torch.empty_like(B_)
        grad_h, grad_A = torch.zeros_like(h[0]), torch.zeros_like(h[0])
        decay = torch.empty_like(grad_h)

        with torch.autocast(u.device.type, enabled=False):  # whoever calls backward may stand under autocast
            for t in reversed(range(len(dt_))):
                grad_h.addcmul_(grad_y[t], C_[t].mT)
                torch.matmul(h[t], grad_y[t].mT, out=grad_C[t])
                torch.matmul(B_[t].mT, grad_h, out=grad_x[t])
                torch.matmul(grad_h, x_[t].mT, out=grad_B[t])
                if t > 0:
                    torch.mul(dt_[t], A, out=decay).exp_()
                    grad_h.mul_(decay)
                    grad_exponent = torch.mul(grad_h, h[t - 1], out=decay)  # of dt_t A
                    grad_A.addcmul_(grad_exponent, dt_[t])
                    torch.sum(grad_exponent.mul_(A), dim=-2, keepdim=True, out=grad_dt[t])

        grad_x = _batch_first(grad_x)
        grad_dt = torch.addcmul(_batch_first(grad_dt), grad_x, u)
        return grad_x * dt, grad_dt, grad_A.sum(0).mT, _batch_first(grad_B), _batch_first(grad_C), None


def _rows(x: Tensor) -> Tensor:
    """(B, L, K, n) -> (L, B, K, 1, n), contiguous."""
    return x.transpose(0, 1).contiguous().unsqueeze(-2)


def _columns(x: Tensor) -> Tensor:
    """(B, L, K, n) -> (L, B, K, n, 1), contiguous."""
    return x.transpose(0, 1).contiguous().unsqueeze(-1)


def _batch_first(x: Tensor) -> Tensor:
    """(L, B, K, 1, n) or (L, B, K, n, 1) -> (B, L, K, n)."""
    return x.flatten(3).transpose(0, 1)
