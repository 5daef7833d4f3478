"""The fused convolution of the branch against its plain twin: on a CUDA device, and in Triton's interpreter."""

import pytest
import torch

from interpreter import assert_holds_interpreted, captured, compiled, starts_the_interpreter
from s6mod.branch import S6MOD, convolution
from s6mod.branch.convolution import convolve_silu, plain_convolve_silu

SHAPES = [  # batch, map, channels
    (1, (1, 1), 1),
    (2, (4, 5), 3),  # channels are no power of two
    (1, (1, 7), 2),
    (5, (6, 1), 9),  # two blocks of channels, the second not full
    (2, (4, 4), 16),
    (1, (16, 16), 2),
]


@pytest.fixture
def no_plain_convolution(monkeypatch):
    """``convolve_silu`` must take the kernels; the plain twin above is already at hand."""
    monkeypatch.setattr(convolution, "plain_convolve_silu", lambda *_: pytest.fail("the kernels were not chosen"))


def inputs(batch, map_size, d, device, side=3):
    """X as the first half of a wider table, weights, bias and a gradient of X^."""
    random = torch.Generator().manual_seed(batch * d)
    steps = map_size[0] * map_size[1]
    shapes = (batch, steps, 2 * d), (d, 1, side, side), (d,), (batch, steps, d)
    both, *others = (2 * torch.randn(shape, generator=random).to(device) for shape in shapes)
    return both.chunk(2, dim=-1)[0], *others


def outcome(function, X, weight, bias, grad, map_size):
    """X^ and the gradients of X, weights and bias."""
    given = [tensor.detach().requires_grad_() for tensor in (X, weight, bias)]
    X_hat = function(*given, map_size)
    return X_hat, *torch.autograd.grad(X_hat, given, grad)


def assert_like_plain(given, map_size):
    ours = outcome(convolve_silu, *given, map_size)
    exactly = outcome(plain_convolve_silu, *(tensor.double() for tensor in given), map_size)
    for value, exact in zip(ours, exactly, strict=True):
        assert value.dtype == torch.float32
        assert value.shape == exact.shape
        assert value.is_contiguous()
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6 * exact.abs().max().item())


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.parametrize("side", [1, 3, 5, 7])
def test_the_plain_version_gives_the_bits_of_the_modules(side):
    X, weight, bias, grad = inputs(3, (4, 5), 6, "cpu", side)
    conv = torch.nn.Conv2d(6, 6, side, padding=side // 2, groups=6)
    conv.weight.data, conv.bias.data = weight, bias

    def modules(X, weight, bias, map_size):
        given = {"weight": weight, "bias": bias}
        maps = torch.func.functional_call(conv, given, X.mT.unflatten(2, map_size))
        return torch.nn.functional.silu(maps).flatten(2).mT.contiguous()

    given = X, weight, bias, grad, (4, 5)
    assert all(map(torch.equal, outcome(plain_convolve_silu, *given), outcome(modules, *given)))


@pytest.mark.usefixtures("no_plain_convolution")
@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_the_plain_version_in_float64(shape, side, device):
    assert_like_plain(inputs(*shape, device, side), shape[1])


@pytest.mark.usefixtures("no_plain_convolution")
def test_a_program_goes_through_several_blocks_of_rows(device, monkeypatch):
    from s6mod.branch import convolution_triton

    monkeypatch.setattr(convolution_triton, "PROGRAMS", 2)
    assert_like_plain(inputs(3, (4, 4), 5, device), (4, 4))


@pytest.mark.usefixtures("no_plain_convolution")
@pytest.mark.parametrize("lie", ["second half", "every other row", "channels first", "expanded"])
def test_what_is_convolved_and_its_gradient_may_lie_in_memory_as_they_like(lie, device):
    _, weight, bias, grad = inputs(3, (2, 3), 5, device)
    wide = torch.randn(3, 12, 10, generator=torch.Generator().manual_seed(0)).to(device)
    X = {
        "second half": wide[:, :6].contiguous()[..., 5:],
        "every other row": wide[:, ::2, :5],
        "channels first": wide[:, :5, :6].mT,
        "expanded": wide[:1, :1, :5].expand(3, 6, 5),
    }[lie]
    assert not X.is_contiguous()
    expected = outcome(convolve_silu, X.contiguous(), weight, bias, grad, (2, 3))
    strided = grad.repeat_interleave(2, dim=-1)[..., ::2]
    for value, other in zip(outcome(convolve_silu, X, weight, bias, strided, (2, 3)), expected, strict=True):
        torch.testing.assert_close(value, other)


@pytest.mark.usefixtures("no_plain_convolution")
def test_rows_of_a_wider_table_are_read_where_they_are(device):
    from s6mod.maps_triton import evenly_spaced  # with Triton, which is chosen to interpret or not by now

    X, *_ = inputs(3, (4, 4), 5, device)
    table, apart = evenly_spaced(X)
    assert table is X
    assert apart == 10


@pytest.mark.usefixtures("no_plain_convolution")
@pytest.mark.parametrize("side", [1, 3])
def test_weights_may_lie_channels_last(side, device):
    X, weight, bias, grad = inputs(3, (4, 4), 5, device, side)
    there = weight.contiguous(memory_format=torch.channels_last)
    assert there.contiguous().data_ptr() == there.data_ptr()  # so that no step copies them
    expected = outcome(convolve_silu, X, weight, bias, grad, (4, 4))
    parameter = torch.nn.Parameter(there)
    X_hat = convolve_silu(X, parameter, bias, (4, 4))
    X_hat.backward(grad)
    assert torch.equal(X_hat, expected[0])
    assert torch.equal(parameter.grad, expected[2])
    assert parameter.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("no_plain_convolution")
def test_the_same_bits_come_out_twice(device):
    given = *inputs(2, (4, 4), 5, device), (4, 4)
    assert all(map(torch.equal, outcome(convolve_silu, *given), outcome(convolve_silu, *given)))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # by the interpreter, on the way to sigmoid 0
@pytest.mark.usefixtures("no_plain_convolution")
def test_large_values_stay_finite_and_what_is_no_number_shows(device):
    X, weight, bias, grad = inputs(2, (2, 2), 3, device)
    large = outcome(convolve_silu, 1e4 * X, weight, bias, grad, (2, 2))
    assert all(value.isfinite().all() for value in large)
    X[1, 2, 0] = torch.nan
    assert convolve_silu(X, weight, bias, (2, 2)).isnan().any(1).tolist() == [[False] * 3, [True, False, False]]


@pytest.mark.usefixtures("no_plain_convolution")
def test_the_branch_takes_them(device):
    torch.manual_seed(0)
    branch = S6MOD(4, 3, (2, 3), d_inner=4).to(device)
    feature_map = torch.randn(2, 4, 2, 3, device=device)
    X_hat, _, _ = branch._paths(feature_map)
    X, _ = branch.in_proj(branch.norm(feature_map.flatten(2).mT)).chunk(2, dim=-1)
    torch.testing.assert_close(X_hat, plain_convolve_silu(X, branch.conv.weight, branch.conv.bias, (2, 3)))


@pytest.mark.parametrize("other", ["type", "side"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device, monkeypatch):
    kernels = "s6mod.branch.convolution_triton.convolve_silu"
    monkeypatch.setattr(kernels, lambda *_: pytest.fail("the kernels were chosen"))
    given = inputs(2, (4, 4), 3, device, side=5 if other == "side" else 3)[:3]
    given = [tensor.double() for tensor in given] if other == "type" else given
    assert torch.equal(convolve_silu(*given, (4, 4)), plain_convolve_silu(*given, (4, 4)))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_convolution")
    @pytest.mark.parametrize("shape", [(74, (4, 4), 128), (148, (8, 8), 256), (400, (4, 4), 128)], ids=str)
    def test_values_and_gradients_are_those_of_the_plain_version_in_float64(self, shape):
        assert_like_plain(inputs(*shape, "cuda"), shape[1])

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.branch import convolution_triton

        outcome(convolve_silu, *inputs(74, (4, 4), 128, "cuda"), (4, 4))
        before = compiled(convolution_triton)
        for batch in (1, 2, 16, 37, 400):
            outcome(convolve_silu, *inputs(batch, (4, 4), 128, "cuda"), (4, 4))
        assert compiled(convolution_triton) == before > 0

    def test_a_captured_convolution_replays_as_it_runs_eagerly(self):
        X, weight, bias, grad = given = inputs(74, (4, 4), 128, "cuda")
        fresh = [tensor.flip(0) for tensor in given]
        fresh[0] = fresh[0].repeat(1, 1, 2).chunk(2, dim=-1)[0]  # so that it lies in memory as X does
        expected = outcome(convolve_silu, *fresh, (4, 4))

        def run():
            X_hat = convolve_silu(X, weight, bias, (4, 4))
            return X_hat, *torch.autograd.grad(X_hat, (X, weight, bias), grad)

        for tensor in (X, weight, bias):
            tensor.requires_grad_()
        graph, replayed = captured(run)
        for place, value in zip(given, fresh, strict=True):
            place.data.copy_(value)
        graph.replay()
        assert all(map(torch.equal, replayed, expected))
