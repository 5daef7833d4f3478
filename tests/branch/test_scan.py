import math
import sys

import pytest
import torch

from s6mod import kernels
from s6mod.branch.scan import (
    cross_merge,
    cross_scan,
    directional_scan,
    plain_directional_scan,
    selective_scan,
    selective_scan_reference,
)

SHAPES = [(1, 1, 1, 1, 1), (2, 4, 3, 5, 1), (3, 4, 5, 2, 6), (2, 1, 4, 3, 9)]  # B, K, d, N, L


def inputs(shape, dtype=torch.float64):
    B, K, d, N, L = shape
    random = torch.Generator().manual_seed(sum(shape))

    def normal(*size):
        return torch.randn(*size, generator=random, dtype=dtype)

    dt = torch.nn.functional.softplus(normal(B, L, K, d) - 1)
    values = (normal(B, L, K, d), dt, -normal(K, d, N).exp(), normal(B, L, K, N), normal(B, L, K, N), normal(K, d))
    return tuple(value.requires_grad_() for value in values)


def test_the_recurrence_by_hand():
    one = torch.ones(1, 2, 1, 1)
    u, dt = torch.tensor([2.0, 3.0]).view_as(one), torch.tensor([1.0, 0.5]).view_as(one)
    A, D = torch.full((1, 1, 1), -2.0), torch.full((1, 1), 10.0)
    B, C = torch.tensor([1.0, 4.0]).view_as(one), torch.tensor([5.0, 7.0]).view_as(one)
    h1 = 1.0 * 1.0 * 2.0
    h2 = math.exp(0.5 * -2.0) * h1 + 0.5 * 4.0 * 3.0
    expected = torch.tensor([5.0 * h1 + 20.0, 7.0 * h2 + 30.0]).view_as(one)
    for recurrence in (selective_scan_reference, selective_scan):
        torch.testing.assert_close(recurrence(u, dt, A, B, C, D), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_the_recurrence(shape):
    given = inputs(shape)
    y, expected = selective_scan(*given), selective_scan_reference(*given)
    torch.testing.assert_close(y, expected)
    weight = torch.randn_like(y)
    for ours, theirs in zip(
        torch.autograd.grad(y, given, weight), torch.autograd.grad(expected, given, weight), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences(shape):
    assert torch.autograd.gradcheck(selective_scan, inputs(shape))


def test_without_gradient_the_values_are_the_same():
    given = inputs(SHAPES[2])
    with torch.no_grad():
        torch.testing.assert_close(selective_scan(*given), selective_scan_reference(*given))


def test_strided_inputs_are_taken_as_they_are():
    given = tuple(value.detach() for value in inputs(SHAPES[2]))
    strided = tuple(value.movedim(-1, 0).contiguous().movedim(0, -1) for value in given)
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(selective_scan(*strided), selective_scan(*given))


def test_the_backward_pass_may_be_called_under_autocast():
    calm, cast = inputs(SHAPES[2], torch.float32), inputs(SHAPES[2], torch.float32)
    selective_scan(*calm).sum().backward()
    y = selective_scan(*cast).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y.backward()
    for ours, theirs in zip(cast, calm, strict=True):
        assert torch.equal(ours.grad, theirs.grad)


# --- four directions ------------------------------------------------------------------------------------------

SIZES = [(2, 3), (1, 4), (3, 1)]
B, D_INNER, STATE, RANK = 2, 3, 2, 2


def orders(height, width):
    """The positions (row, column) in the order in which each direction meets them."""
    return [
        [(i, j) for i in range(height) for j in range(width)],
        [(i, j) for i in reversed(range(height)) for j in reversed(range(width))],
        [(i, j) for j in range(width) for i in range(height)],
        [(i, j) for j in reversed(range(width)) for i in reversed(range(height))],
    ]


def directional_inputs(size, dtype=torch.float64):
    random, length = torch.Generator().manual_seed(sum(size)), size[0] * size[1]

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()

    return (
        normal(B, length, D_INNER),
        normal(B, length, 4, RANK),
        normal(B, length, 4, 2 * STATE),
        *(normal(4, D_INNER, RANK), normal(4, D_INNER), normal(4, D_INNER, STATE), normal(4, D_INNER)),
    )


def number_by_number(u, delta, BC, dt_proj, dt_bias, A_log, D, size):
    """The four scans as they are written down, one number at a time."""
    y = torch.zeros_like(u)
    for b in range(B):
        for k, order in enumerate(orders(*size)):
            for c in range(D_INNER):
                h = [0.0] * STATE
                for i, j in order:
                    p = i * size[1] + j
                    step = torch.log(1 + torch.exp(delta[b, p, k] @ dt_proj[k, c] + dt_bias[k, c]))
                    for n in range(STATE):
                        decay = torch.exp(-step * torch.exp(A_log[k, c, n]))
                        h[n] = decay * h[n] + step * BC[b, p, k, n] * u[b, p, c]
                        y[b, p, c] += BC[b, p, k, STATE + n] * h[n]
                    y[b, p, c] += D[k, c] * u[b, p, c]
    return y


@pytest.mark.parametrize("size", SIZES)
def test_the_directional_scan_is_the_sum_of_four_scans_as_they_are_written_down(size):
    given = tuple(value.detach() for value in directional_inputs(size))
    expected = number_by_number(*given, size)
    torch.testing.assert_close(plain_directional_scan(*given, size), expected)
    torch.testing.assert_close(directional_scan(*given, size), expected)


@pytest.mark.parametrize("size", SIZES)
def test_gradients_of_the_directional_scan_are_those_of_finite_differences(size):
    assert torch.autograd.gradcheck(lambda *given: plain_directional_scan(*given, size), directional_inputs(size))


def test_where_there_is_no_triton_the_plain_scan_is_taken(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # as on a GPU: kernels are wanted
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "s6mod.branch.scan_triton", raising=False)
    given = directional_inputs((2, 3), torch.float32)
    kernels._kernels.cache_clear()
    try:
        assert torch.equal(directional_scan(*given, (2, 3)), plain_directional_scan(*given, (2, 3)))
    finally:
        kernels._kernels.cache_clear()


@pytest.mark.parametrize("size", [(4, 4), (2, 5), (3, 1)])
def test_without_memory_every_position_comes_back_in_place(size):
    length = size[0] * size[1]
    _, delta, BC, dt_proj, dt_bias, A_log, D = (value.detach() for value in directional_inputs(size))
    u = torch.eye(length, dtype=torch.float64)[:, :, None].expand(-1, -1, D_INNER)  # one sample for each position
    delta, BC = delta[:1].expand(length, -1, -1, -1), BC[:1].expand(length, -1, -1, -1)
    y = plain_directional_scan(u, delta, BC, dt_proj, dt_bias, torch.full_like(A_log, 30.0), D, size)
    assert torch.equal(y != 0, u != 0)


def test_the_four_orders_on_a_map_of_two_rows_and_three_columns():
    x = torch.tensor([1, 2, 3, 4, 5, 6]).view(1, 6, 1, 1).expand(1, 6, 4, 1)
    assert cross_scan(x, (2, 3))[0, :, :, 0].T.tolist() == [
        [1, 2, 3, 4, 5, 6],
        [6, 5, 4, 3, 2, 1],
        [1, 4, 2, 5, 3, 6],
        [6, 3, 5, 2, 4, 1],
    ]


@pytest.mark.parametrize("size", [(4, 4), (2, 5), (3, 1)])
def test_merging_puts_every_position_back_in_place(size):
    one_hot = torch.eye(size[0] * size[1])[:, :, None]  # (B, L, 1), one sample for each position
    ordered = cross_scan(one_hot[:, :, None].expand(-1, -1, 4, -1), size)
    for direction in range(4):
        alone = torch.zeros(4).index_fill(0, torch.tensor(direction), 1)[:, None]
        assert torch.equal(cross_merge(alone * ordered, size), one_hot)
    assert torch.equal(cross_merge(ordered, size), 4 * one_hot)
