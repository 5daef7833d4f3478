"""The fused readout against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch

from interpreter import assert_holds_interpreted, assert_near, captured, compiled, starts_the_interpreter
from s6mod.branch import S6MOD
from s6mod.branch import readout as module
from s6mod.branch.readout import plain_readout, readout

EPS = 1e-5


@pytest.fixture
def no_plain_readout(monkeypatch):
    """``readout`` must take the kernels; the plain twin above is already at hand."""
    monkeypatch.setattr(module, "plain_readout", lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def small_tiles(device, monkeypatch):
    """A few positions are several blocks."""
    monkeypatch.setattr("s6mod.branch.readout_triton.TILE", 32)


def inputs(batch, positions, d, device):
    """y with a mean, Z as the second half of a wider tensor, weight and bias of the norm, and a gradient of mu."""
    random = torch.Generator().manual_seed(batch * positions * d)
    y = 0.5 + 2 * torch.randn(batch, positions, d, generator=random)
    Z = 2 * torch.randn(batch, positions, 2 * d, generator=random)
    weight, bias = 1 + 0.3 * torch.randn(d, generator=random), 0.5 * torch.randn(d, generator=random)
    grad = torch.randn(batch, d, generator=random)
    y, Z, weight, bias, grad = (each.to(device) for each in (y, Z, weight, bias, grad))
    return y, Z[..., d:], weight, bias, grad


def outcome(function, y, Z, weight, bias, grad):
    """mu and the gradients of everything; the tensors are taken as they lie in memory."""
    given = [each.detach().requires_grad_() for each in (y, Z, weight, bias)]
    mu = function(*given, EPS)
    return mu, *torch.autograd.grad(mu, given, grad)


def assert_like_plain(given):
    ours = outcome(readout, *given)
    exactly = outcome(plain_readout, *(each.double() for each in given))
    assert_near(ours, exactly)


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.usefixtures("no_plain_readout")
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 3),
        (1, 4, 8),
        (3, 1, 6),
        (5, 9, 5),  # neither positions nor channels are a power of two
        (2, 16, 128),
        (1, 64, 256),  # four blocks
        (1, 50, 200),  # four blocks, the last not full
    ],
    ids=str,
)
def test_mu_and_gradients_are_those_of_the_plain_version_in_float64(shape, device):
    assert_like_plain(inputs(*shape, device))


@pytest.mark.usefixtures("no_plain_readout", "small_tiles")
@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 25, 7), (2, 3, 20)], ids=str)
def test_a_sample_may_take_several_blocks(shape, device):
    assert_like_plain(inputs(*shape, device))


@pytest.mark.usefixtures("no_plain_readout")
def test_mu_has_length_1_unless_it_is_shorter_than_epsilon(device):
    y, Z, weight, bias, grad = inputs(4, 6, 16, device)
    torch.testing.assert_close(readout(y, Z, weight, bias, EPS).norm(dim=1), torch.ones(4, device=device))
    assert_like_plain((y, Z, 1e-6 * weight, 1e-6 * bias, grad))  # neither of the two
    assert not readout(y, Z, 0 * weight, 0 * bias, EPS).any()


@pytest.mark.usefixtures("no_plain_readout")
def test_a_single_channel_is_a_sign_without_a_slope(device):
    given = inputs(3, 4, 1, device)
    mu, *gradients = outcome(readout, *given)
    torch.testing.assert_close(mu, plain_readout(*given[:4], EPS))
    assert all(gradient.abs().max() < 1e-5 for gradient in gradients)


@pytest.mark.usefixtures("no_plain_readout")
@pytest.mark.parametrize(
    "lie",
    [
        lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],  # numbers of a row apart
        lambda t: t.repeat_interleave(2, dim=1)[:, ::2],  # rows apart, evenly: so Z is read as it lies
        lambda t: torch.cat([t, t], dim=1)[:, : t.shape[1]],  # rows apart, not evenly
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: t.mT.contiguous().mT,
    ],
    ids=["columns", "even rows", "uneven rows", "samples", "transposed"],
)
def test_tensors_may_lie_in_memory_as_they_like(lie, device):
    y, Z, weight, bias, grad = inputs(3, 4, 6, device)
    expected = outcome(readout, y, Z.contiguous(), weight, bias, grad)
    y, Z = lie(y), lie(Z)
    assert not y.is_contiguous()
    assert not Z.is_contiguous()
    grad = grad.repeat_interleave(2, dim=-1)[..., ::2]
    torch.testing.assert_close(outcome(readout, y, Z, weight, bias, grad), expected)


@pytest.mark.usefixtures("no_plain_readout")
def test_a_single_channel_may_lie_along_the_positions(device):
    y, Z, weight, bias, _ = inputs(3, 4, 1, device)
    Z = Z.mT.contiguous().mT
    assert Z.stride() == (4, 1, 4)
    torch.testing.assert_close(readout(y, Z, weight, bias, EPS), plain_readout(y, Z, weight, bias, EPS))


@pytest.mark.usefixtures("no_plain_readout")
@pytest.mark.parametrize("positions", [1, 4])
def test_a_single_sample_may_be_any_part(positions, device):
    given = inputs(3, positions, 6, device)
    alone = [each[1:2] if each.dim() > 1 else each for each in given]
    whole, part = outcome(readout, *given), outcome(readout, *alone)
    for value, expected in zip(part[:3], whole[:3], strict=True):
        torch.testing.assert_close(value, expected[1:2])


@pytest.mark.usefixtures("no_plain_readout")
@pytest.mark.parametrize("wanted", range(4))
def test_only_some_may_want_a_gradient(wanted, device):
    given = inputs(2, 3, 5, device)
    expected = outcome(readout, *given)[1 + wanted]
    given[wanted].requires_grad_()
    readout(*given[:4], EPS).backward(given[4])
    assert torch.equal(given[wanted].grad, expected)
    assert [each.grad is None for each in given[:4]] == [number != wanted for number in range(4)]


@pytest.mark.usefixtures("no_plain_readout")
def test_gates_far_from_0_have_finite_gradients(device):
    y, Z, weight, bias, grad = inputs(2, 4, 8, device)
    Z[0], Z[1] = 200, -200
    assert all(value.isfinite().all() for value in outcome(readout, y, Z, weight, bias, grad))


@pytest.mark.usefixtures("no_plain_readout")
@pytest.mark.parametrize("number", [0, 1])
def test_what_is_no_number_shows(number, device):
    given = inputs(4, 3, 5, device)
    given[number][2, 1, 3] = torch.nan
    assert torch.isnan(readout(*given[:4], EPS)).any(1).tolist() == [False, False, True, False]


@pytest.mark.usefixtures("no_plain_readout")
def test_the_same_bits_come_twice(device):
    first, again = (outcome(readout, *inputs(5, 9, 5, device)) for _ in range(2))
    assert all(map(torch.equal, first, again))


@pytest.mark.usefixtures("no_plain_readout")
def test_the_branch_takes_it(device):
    torch.manual_seed(0)
    branch = S6MOD(channels=4, num_classes=3, map_size=2, d_inner=6).to(device)
    mu = branch.features(torch.randn(3, 4, 2, 2, device=device))
    torch.testing.assert_close(mu.norm(dim=1), torch.ones(3, device=device))


@pytest.mark.parametrize("other", ["type", "positions", "channels", "no samples"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.readout_triton.readout", lambda *_: pytest.fail("the kernels were chosen"))
    shape = {"positions": (1, 257, 128), "channels": (1, 1, 4097), "no samples": (0, 4, 6)}.get(other, (2, 4, 6))
    given = [each.double() if other == "type" else each for each in inputs(*shape, device)[:4]]
    assert torch.equal(readout(*given, EPS), plain_readout(*given, EPS))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_readout")
    @pytest.mark.parametrize("shape", [(74, 16, 128), (400, 16, 256), (148, 49, 200), (20, 64, 256)], ids=str)
    def test_mu_and_gradients_are_those_of_the_plain_version_in_float64(self, shape):
        assert_like_plain(inputs(*shape, "cuda"))

    def test_the_same_bits_come_twice(self):
        first, again = (outcome(readout, *inputs(400, 16, 128, "cuda")) for _ in range(2))
        assert all(map(torch.equal, first, again))

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.branch import readout_triton

        outcome(readout, *inputs(74, 16, 128, "cuda"))
        before = compiled(readout_triton)
        for batch in (1, 2, 16, 37, 148, 400):
            outcome(readout, *inputs(batch, 16, 128, "cuda"))
        assert compiled(readout_triton) == before > 0

    def test_a_captured_readout_replays_as_it_runs_eagerly(self):
        *static, grad = inputs(74, 16, 128, "cuda")
        fresh = inputs(74, 16, 128, "cuda")
        for each in fresh:  # in place, so that it lies as before
            each.copy_(0.9 * each.flip(0))
        expected = outcome(readout, *fresh)

        def run():
            mu = readout(*static, EPS)
            return mu, *torch.autograd.grad(mu, static, grad)

        for each in static:
            each.requires_grad_()
        graph, replayed = captured(run)
        for place, value in zip((*static, grad), fresh, strict=True):
            place.data.copy_(value)
        graph.replay()
        assert all(map(torch.equal, replayed, expected))
