"""``directional_scan`` in one Triton kernel forwards and one backwards, in float32.

What is computed is defined by ``plain_directional_scan`` in ``scan``, which imports this module where there is Triton.
A program takes a few channels of one direction of one sample through time, their state in the registers of one warp;
the order of a direction is arithmetic on positions. What several programs contribute to is summed afterwards, always
in the same order, so that results are the same bits every time.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from s6mod.branch.scan import NUM_DIRECTIONS

K = tl.constexpr(NUM_DIRECTIONS)
BLOCK = 256  # numbers of a state that one warp takes, 8 to a thread


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
    """As ``scan.directional_scan``, for float32 tensors on one CUDA device."""
    given = (tensor.contiguous() for tensor in (u, delta, BC, dt_proj, dt_bias, A_log, D))
    y: Tensor = _DirectionalScan.apply(*given, map_size, torch.is_grad_enabled())
    return y


class _DirectionalScan(torch.autograd.Function):
    """States are kept at the start of every segment of about sqrt(L) steps, and made again from there.

    To keep all of them would move 39 MB out and in for a batch of 74 at d = 128 and L = 16, and 310 MB at d = 256
    and L = 64; those of one segment stay in the cache.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, map_size, keep = given
        u, delta, BC, *_ = tensors
        sizes = _sizes(u, delta, BC, map_size)
        batch, steps, d = u.shape
        grid = (batch, NUM_DIRECTIONS, triton.cdiv(d, sizes["BLOCK_D"]))
        y = u.new_empty(batch, NUM_DIRECTIONS, steps, d)
        starts = u.new_empty(*grid, sizes["SEGMENTS"] if keep else 0, sizes["BLOCK_D"], sizes["BLOCK_N"])
        with torch.cuda.device_of(u):  # Triton launches on the current device
            _forward_kernel[grid](*tensors, y, starts, KEEP=keep, **sizes, num_warps=1)
        ctx.save_for_backward(*tensors, starts)
        ctx.sizes, ctx.grid = sizes, grid
        merged: Tensor = y.sum(1)
        return merged

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, starts = ctx.saved_tensors
        u, delta, BC, *parameters = tensors
        batch, directions, blocks = ctx.grid
        grad_u = u.new_empty(batch, directions, *u.shape[1:])
        by_block, grad_delta, grad_BC = _shares(blocks, [delta, BC])
        by_sample, *grad_parameters = _shares(batch, parameters)
        states = u.new_empty(*ctx.grid, ctx.sizes["SEGMENT"], *starts.shape[-2:])
        with torch.cuda.device_of(u):
            _backward_kernel[ctx.grid](
                *(*tensors, starts, states, grad.contiguous(), grad_u, grad_delta, grad_BC, *grad_parameters),
                **ctx.sizes,
                num_warps=1,
                maxnreg=128,  # so that 16 warps find room on a multiprocessor, and nothing is spilled
            )
        return grad_u.sum(1), *_sums(by_block, [delta, BC]), *_sums(by_sample, parameters), None, None


def _sizes(u: Tensor, delta: Tensor, BC: Tensor, map_size: tuple[int, int]) -> dict[str, int]:
    """Constants of the kernels: the sizes of the problem, and of the blocks that hold it."""
    height, width = map_size
    d, R, N = u.shape[-1], delta.shape[-1], BC.shape[-1] // 2
    steps = height * width
    segment = next(n for n in range(1, steps + 1) if n * n >= steps and steps % n == 0)
    block_r, block_n = triton.next_power_of_2(R), triton.next_power_of_2(N)
    block_d = min(triton.next_power_of_2(d), max(BLOCK // max(block_r, block_n), 1))
    return {
        **{"H": height, "W": width, "d": d, "R": R, "N": N},
        **{"SEGMENT": segment, "SEGMENTS": steps // segment},
        **{"BLOCK_D": block_d, "BLOCK_R": block_r, "BLOCK_N": block_n},
    }


def _shares(count: int, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """Memory for ``count`` shares in the gradients of ``tensors``: as a whole, for one sum, and part by part."""
    lengths = [tensor.numel() for tensor in tensors]
    whole = tensors[0].new_empty(count, sum(lengths))
    return whole, *whole.split(lengths, dim=1)


def _sums(whole: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    sums = whole.sum(0).split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(sums, tensors, strict=True)]


# --- kernels --------------------------------------------------------------------------------------------------
#
# Blocks have two axes throughout: channels (BLOCK_D or 1) and ranks or states (BLOCK_R, BLOCK_N or 1). Where a block is
# wider than what it holds it is filled up with zeros, which stay zeros.


@triton.jit
def _forward_kernel(
    u, delta, BC, dt_proj, dt_bias, A_log, D, y, starts,
    H: tl.constexpr, W: tl.constexpr, d: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    SEGMENT: tl.constexpr, SEGMENTS: tl.constexpr, KEEP: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """y of each direction and, if gradients are wanted, the state before each segment."""
    b, k, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    channel = block * BLOCK_D + tl.arange(0, BLOCK_D)[:, None]
    rank, state = tl.arange(0, BLOCK_R)[None, :], tl.arange(0, BLOCK_N)[None, :]
    W_dt, b_dt, A, skip = _load_parameters(dt_proj, dt_bias, A_log, D, k, channel, rank, state, d, R, N)
    u += b * H * W * d
    delta += (b * H * W * K + k) * R
    BC += (b * H * W * K + k) * 2 * N
    y += (b * K + k) * H * W * d
    starts += ((b * K + k) * tl.num_programs(2) + block) * SEGMENTS * BLOCK_D * BLOCK_N

    h = tl.zeros_like(A)
    for t in range(H * W):
        if KEEP and t % SEGMENT == 0:
            tl.store(starts + t // SEGMENT * BLOCK_D * BLOCK_N + _places(BLOCK_D, BLOCK_N), h)
        position = _position(k, t, H, W)
        u_t, delta_t, B_t, C_t = _load_step(u, delta, BC, position, channel, rank, state, d, R, N)
        dt, _ = _softplus(tl.sum(W_dt * delta_t, axis=1, keep_dims=True) + b_dt)
        h = tl.exp(dt * A) * h + dt * u_t * B_t
        y_t = tl.sum(h * C_t, axis=1, keep_dims=True) + skip * u_t
        tl.store(y + position * d + channel, y_t, channel < d)


@triton.jit
def _backward_kernel(
    u, delta, BC, dt_proj, dt_bias, A_log, D, starts, states,
    grad_y, grad_u, grad_delta, grad_BC, grad_dt_proj, grad_dt_bias, grad_A_log, grad_D,
    H: tl.constexpr, W: tl.constexpr, d: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    SEGMENT: tl.constexpr, SEGMENTS: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradients: of u by direction, of delta and BC by block of channels, of the parameters by sample."""
    b, k, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    channel = block * BLOCK_D + tl.arange(0, BLOCK_D)[:, None]
    rank, state = tl.arange(0, BLOCK_R)[None, :], tl.arange(0, BLOCK_N)[None, :]
    W_dt, b_dt, A, skip = _load_parameters(dt_proj, dt_bias, A_log, D, k, channel, rank, state, d, R, N)
    u += b * H * W * d
    delta += (b * H * W * K + k) * R
    BC += (b * H * W * K + k) * 2 * N
    program = (b * K + k) * tl.num_programs(2) + block
    starts += program * SEGMENTS * BLOCK_D * BLOCK_N
    states += program * SEGMENT * BLOCK_D * BLOCK_N
    grad_y += b * H * W * d
    grad_u += (b * K + k) * H * W * d
    share = block.to(tl.int64) * tl.num_programs(0) * H * W * K * (R + 2 * N)
    grad_delta += share + (b * H * W * K + k) * R
    grad_BC += share + (b * H * W * K + k) * 2 * N

    sum_W_dt, sum_b_dt = tl.zeros_like(W_dt), tl.zeros_like(b_dt)
    sum_A, sum_D = tl.zeros_like(A), tl.zeros_like(skip)
    grad_h = tl.zeros_like(A)
    for segments_after in range(SEGMENTS):
        segment = SEGMENTS - 1 - segments_after
        first = segment * SEGMENT

        h = tl.load(starts + segment * BLOCK_D * BLOCK_N + _places(BLOCK_D, BLOCK_N))
        for step in range(SEGMENT):  # keep the state before each
            tl.store(states + step * BLOCK_D * BLOCK_N + _places(BLOCK_D, BLOCK_N), h)
            position = _position(k, first + step, H, W)
            u_t, delta_t, B_t, _ = _load_step(u, delta, BC, position, channel, rank, state, d, R, N)
            dt, _ = _softplus(tl.sum(W_dt * delta_t, axis=1, keep_dims=True) + b_dt)
            h = tl.exp(dt * A) * h + dt * u_t * B_t
        tl.debug_barrier()  # what one thread has stored another may load

        for steps_after in range(SEGMENT):
            step = SEGMENT - 1 - steps_after
            position = _position(k, first + step, H, W)
            u_t, delta_t, B_t, C_t = _load_step(u, delta, BC, position, channel, rank, state, d, R, N)
            grad_y_t = tl.load(grad_y + position * d + channel, channel < d, 0.0)
            before = tl.load(states + step * BLOCK_D * BLOCK_N + _places(BLOCK_D, BLOCK_N))  # h_{t-1}
            dt, slope = _softplus(tl.sum(W_dt * delta_t, axis=1, keep_dims=True) + b_dt)
            decay = tl.exp(dt * A)

            grad_h += grad_y_t * C_t
            grad_C = tl.sum((decay * before + dt * u_t * B_t) * grad_y_t, axis=0, keep_dims=True)
            grad_B = tl.sum(grad_h * (dt * u_t), axis=0, keep_dims=True)
            grad_x = tl.sum(grad_h * B_t, axis=1, keep_dims=True)  # of dt_t u_t
            grad_h *= decay
            grad_exponent = grad_h * before  # of dt_t A
            grad_dt = tl.sum(grad_exponent * A, axis=1, keep_dims=True) + grad_x * u_t
            grad_raw = grad_dt * slope  # of W_dt delta_t + b_dt
            grad_delta_t = tl.sum(W_dt * grad_raw, axis=0, keep_dims=True)

            tl.store(grad_u + position * d + channel, grad_x * dt + skip * grad_y_t, channel < d)
            tl.store(grad_delta + position * K * R + rank, grad_delta_t, rank < R)
            tl.store(grad_BC + position * K * 2 * N + state, grad_B, state < N)
            tl.store(grad_BC + position * K * 2 * N + N + state, grad_C, state < N)
            sum_W_dt += grad_raw * delta_t
            sum_b_dt += grad_raw
            sum_A += grad_exponent * dt
            sum_D += grad_y_t * u_t
        tl.debug_barrier()  # all have loaded before the next segment is stored

    share, line = b * K * d * (R + N + 2), k * d + channel
    tl.store(grad_dt_proj + share + line * R + rank, sum_W_dt, (channel < d) & (rank < R))
    tl.store(grad_dt_bias + share + line, sum_b_dt, channel < d)
    tl.store(grad_A_log + share + line * N + state, sum_A * A, (channel < d) & (state < N))
    tl.store(grad_D + share + line, sum_D, channel < d)


@triton.jit
def _position(k, t, H: tl.constexpr, W: tl.constexpr):
    """Where direction k is at time t, as ``scan.cross_scan`` has it."""
    step = tl.where(k % 2 == 1, H * W - 1 - t, t)
    return tl.where(k < 2, step, step % H * W + step // H)


@triton.jit
def _places(BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where the numbers of a state that is kept lie."""
    return tl.arange(0, BLOCK_D)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def _load_parameters(
    dt_proj, dt_bias, A_log, D, k, channel, rank, state, d: tl.constexpr, R: tl.constexpr, N: tl.constexpr
):
    """W_dt, b_dt, A and D of direction k."""
    line, there = k * d + channel, channel < d
    W_dt = tl.load(dt_proj + line * R + rank, there & (rank < R), 0.0)
    A = -tl.exp(tl.load(A_log + line * N + state, there & (state < N), 0.0))
    return W_dt, tl.load(dt_bias + line, there, 0.0), A, tl.load(D + line, there, 0.0)


@triton.jit
def _load_step(u, delta, BC, position, channel, rank, state, d: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    """u, delta, B and C of this program's sample and direction at one position."""
    u_t = tl.load(u + position * d + channel, channel < d, 0.0)
    delta_t = tl.load(delta + position * K * R + rank, rank < R, 0.0)
    B_t = tl.load(BC + position * K * 2 * N + state, state < N, 0.0)
    C_t = tl.load(BC + position * K * 2 * N + N + state, state < N, 0.0)
    return u_t, delta_t, B_t, C_t


@triton.jit
def _softplus(x):
    """log(1 + exp(x)) and its derivative, with all digits for the smallest step sizes too."""
    z = tl.exp(-tl.abs(x))
    ratio = z / (2 + z)  # at most 1 / 3, and log(1 + z) = 2 (ratio + ratio^3 / 3 + ratio^5 / 5 + ...)
    square = ratio * ratio
    series = tl.zeros_like(x)
    for odd in tl.static_range(17, 0, -2):
        series = series * square + 1 / odd
    return tl.maximum(x, 0.0) + 2 * ratio * series, tl.where(x >= 0, 1.0, z) / (1 + z)
