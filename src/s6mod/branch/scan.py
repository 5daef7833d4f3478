"""The selective scan and the four orders in which it reads a map (SS2D).

``selective_scan`` is the one to use; ``selective_scan_reference`` is the recurrence as it is written down and the
tests' oracle. Projections and the choice of step sizes are not here.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.branch.precision import full_precision

NUM_DIRECTIONS = 4


def cross_scan(x: Tensor) -> Tensor:
    """Read a map (B, d, H, W) by rows, by rows backwards, by columns, by columns backwards: (B, 4, d, L)."""
    rows = x.flatten(2)
    columns = x.transpose(2, 3).flatten(2)
    return torch.stack([rows, rows.flip(-1), columns, columns.flip(-1)], dim=1)


def cross_merge(y: Tensor, height: int, width: int) -> Tensor:
    """Undo the four orders of ``cross_scan`` and sum: (B, 4, d, L) -> (B, d, H, W)."""
    rows = y[:, 0] + y[:, 1].flip(-1)
    columns = y[:, 2] + y[:, 3].flip(-1)
    batch, d, _ = rows.shape
    return rows.view(batch, d, height, width) + columns.view(batch, d, width, height).transpose(2, 3)


@full_precision
def selective_scan_reference(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t ; y_t = C_t h_t + D u_t, step by step; see ``selective_scan``."""
    h = torch.zeros_like(u[..., :1] * A)  # (B, K, d, N)
    y = []
    for t in range(u.shape[-1]):
        dt_t, u_t = dt[..., t, None], u[..., t, None]  # (B, K, d, 1)
        B_t, C_t = B[:, :, None, :, t], C[:, :, None, :, t]  # (B, K, 1, N)
        h = torch.exp(dt_t * A) * h + dt_t * B_t * u_t
        y.append((C_t * h).sum(-1) + D * u[..., t])
    return torch.stack(y, dim=-1)


@full_precision
def selective_scan(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The scan of all directions at once, y (B, K, d, L), in float32 (under autocast too; float64 for float64).

    u, dt (B, K, d, L); A (K, d, N); B, C (B, K, N, L); D (K, d). Which kernel suits the device is chosen here.
    """
    y: Tensor = _TimeFirstScan.apply(u, dt, A, B, C, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return y + D[..., None] * u


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
        steps, (batch, directions, d, _) = u.shape[-1], u.shape
        states = steps if keep else 1  # without gradient the latest state is enough
        h = u.new_empty(states, batch, directions, A.shape[1], d)
        y = u.new_empty(steps, batch, directions, 1, d)
        decay = torch.empty_like(h[0])

        latest = torch.mul(x_[0], B_[0], out=h[0])
        torch.matmul(C_[0], latest, out=y[0])
        for t in range(1, steps):
            torch.mul(dt_[t], A, out=decay).exp_()
            latest = torch.mul(decay, latest, out=h[t % states]).addcmul_(x_[t], B_[t])
            torch.matmul(C_[t], latest, out=y[t])

        ctx.save_for_backward(u, dt, A, dt_, x_, B_, C_, h)
        return _last(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, dt, A, dt_, x_, B_, C_, h = ctx.saved_tensors
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

        grad_x = _last(grad_x)
        return grad_x * dt, grad_x * u + _last(grad_dt), grad_A.sum(0).mT, _last(grad_B), _last(grad_C), None


def _rows(x: Tensor) -> Tensor:
    """(B, K, n, L) -> (L, B, K, 1, n), contiguous."""
    return x.permute(3, 0, 1, 2).contiguous().unsqueeze(-2)


def _columns(x: Tensor) -> Tensor:
    """(B, K, n, L) -> (L, B, K, n, 1), contiguous."""
    return x.permute(3, 0, 1, 2).contiguous().unsqueeze(-1)


def _last(x: Tensor) -> Tensor:
    """(L, B, K, 1, n) or (L, B, K, n, 1) -> (B, K, n, L)."""
    return x.flatten(3).permute(1, 2, 3, 0)
