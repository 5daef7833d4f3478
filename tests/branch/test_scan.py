import pytest
import torch

from s6mod.branch.scan import cross_merge, cross_scan, selective_scan, selective_scan_reference

SHAPES = [(1, 1, 1, 1, 1), (2, 4, 3, 5, 1), (3, 4, 5, 2, 6), (2, 1, 4, 3, 9)]  # B, K, d, N, L


def inputs(shape, dtype=torch.float64):
    B, K, d, N, L = shape
    random = torch.Generator().manual_seed(sum(shape))

    def normal(*size):
        return torch.randn(*size, generator=random, dtype=dtype)

    dt = torch.nn.functional.softplus(normal(B, K, d, L) - 1)
    values = (normal(B, K, d, L), dt, -normal(K, d, N).exp(), normal(B, K, N, L), normal(B, K, N, L), normal(K, d))
    return tuple(value.requires_grad_() for value in values)


def test_the_recurrence_by_hand():
    one = torch.ones(1, 1, 1, 1)
    u, dt = torch.tensor([2.0, 3.0]) * one, torch.tensor([1.0, 0.5]) * one
    A, D = torch.full((1, 1, 1), -2.0), torch.full((1, 1), 10.0)
    B, C = torch.tensor([1.0, 4.0]) * one, torch.tensor([5.0, 7.0]) * one
    h1 = 1.0 * 1.0 * 2.0
    h2 = torch.tensor(0.5 * -2.0).exp() * h1 + 0.5 * 4.0 * 3.0
    expected = torch.stack([torch.tensor(5.0 * h1 + 20.0), 7.0 * h2 + 30.0]).view(1, 1, 1, 2)
    for scan in (selective_scan_reference, selective_scan):
        torch.testing.assert_close(scan(u, dt, A, B, C, D), expected)


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


def test_half_precision_inputs_are_scanned_in_float32_even_under_autocast():
    given = tuple(value.detach().bfloat16() for value in inputs(SHAPES[2]))
    expected = selective_scan_reference(*(value.float() for value in given))
    leaves = tuple(value.clone().requires_grad_() for value in given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = selective_scan(*leaves)
        y.sum().backward()  # the backward pass may be called under autocast too
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, expected)
    wide = tuple(value.float().requires_grad_() for value in given)
    selective_scan_reference(*wide).sum().backward()
    for ours, theirs in zip(leaves, wide, strict=True):
        torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=1e-2, atol=1e-2)


def test_the_four_orders_on_a_map_of_two_rows_and_three_columns():
    x = torch.tensor([[1, 2, 3], [4, 5, 6]]).view(1, 1, 2, 3)
    assert cross_scan(x)[0, :, 0].tolist() == [
        [1, 2, 3, 4, 5, 6],
        [6, 5, 4, 3, 2, 1],
        [1, 4, 2, 5, 3, 6],
        [6, 3, 5, 2, 4, 1],
    ]


@pytest.mark.parametrize("size", [(4, 4), (2, 5), (3, 1)])
def test_merging_puts_every_position_back_in_place(size):
    height, width = size
    one_hot = torch.eye(height * width).view(height * width, 1, height, width)
    for direction in range(4):
        alone = torch.zeros(4).index_fill(0, torch.tensor(direction), 1).view(1, 4, 1, 1)
        assert torch.equal(cross_merge(alone * cross_scan(one_hot), height, width), one_hot)
    assert torch.equal(cross_merge(cross_scan(one_hot), height, width), 4 * one_hot)
