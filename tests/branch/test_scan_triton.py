"""The fused scan against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch

from interpreter import assert_holds_interpreted, captured, starts_the_interpreter
from s6mod.branch import scan
from s6mod.branch.scan import directional_scan, plain_directional_scan

NAMES = ("u", "delta", "BC", "dt_proj", "dt_bias", "A_log", "D")


def inputs(batch, d, state, rank, size, device, dtype=torch.float32):
    """Step sizes from 1e-3 to about 1, as they are at the start of training."""
    random, length = torch.Generator().manual_seed(d), size[0] * size[1]

    def normal(*shape):
        return torch.randn(*shape, generator=random)

    values = (
        normal(batch, length, d),
        normal(batch, length, 4, rank),
        normal(batch, length, 4, 2 * state),
        normal(4, d, rank) / rank**0.5,
        torch.linspace(-7, 1, 4 * d).view(4, d),
        torch.arange(1.0, state + 1).log().expand(4, d, state) + 0.1 * normal(4, d, state),
        normal(4, d),
    )
    return tuple(value.to(device, dtype).requires_grad_() for value in values)


def outcome(scan, given, size):
    """y and the gradients of all inputs."""
    y = scan(*given, size)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(y)
    return {"y": y, **dict(zip(NAMES, torch.autograd.grad(y, given, weight), strict=True))}


def assert_like_plain(shape, device):
    *_, size = shape
    ours = outcome(directional_scan, inputs(*shape, device), size)
    theirs = outcome(plain_directional_scan, inputs(*shape, device, torch.float64), size)
    for name, exact in theirs.items():
        assert ours[name].dtype == torch.float32
        assert ours[name].shape == exact.shape
        assert (ours[name] - exact).norm() <= 1e-5 * exact.norm(), name


@pytest.fixture
def no_plain_scan(monkeypatch):
    """``directional_scan`` must take the kernels."""
    monkeypatch.setattr(scan, "plain_directional_scan", lambda *_: pytest.fail("the kernels were not chosen"))


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.usefixtures("no_plain_scan")
@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 4, 4, (4, 4)),
        (2, 5, 3, 6, (2, 3)),  # neither channels nor states nor ranks are powers of two
        (1, 20, 16, 1, (1, 2)),  # two blocks of channels, the second of them not full
        (1, 1, 1, 1, (5, 1)),  # five steps do not fall into segments
        (1, 2, 1, 2, (1, 1)),
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_scan_in_float64(shape, device):
    assert_like_plain(shape, device)


@pytest.mark.usefixtures("no_plain_scan")
def test_without_gradient_the_values_are_the_same(device):
    given = inputs(1, 5, 3, 2, (1, 3), device)
    y = directional_scan(*given, (1, 3))
    with torch.no_grad():
        assert torch.equal(directional_scan(*given, (1, 3)), y)


def test_inputs_and_gradients_may_lie_in_memory_as_they_like(device):
    given, size = inputs(1, 4, 2, 2, (1, 3), device), (1, 3)
    strided = tuple(value.movedim(-1, 0).contiguous().movedim(0, -1) for value in given)
    assert not strided[0].is_contiguous()
    ones = torch.ones(1, 3, 4, device=device)
    expected = torch.autograd.grad(directional_scan(*given, size), given, ones)
    found = torch.autograd.grad(directional_scan(*strided, size).sum(), given)  # of a sum: one number, expanded
    for name, ours, theirs in zip(NAMES, found, expected, strict=True):
        assert torch.equal(ours, theirs), name


def test_float64_is_left_to_the_plain_scan(device):
    given = inputs(1, 4, 2, 2, (2, 2), device, torch.float64)
    assert torch.equal(directional_scan(*given, (2, 2)), plain_directional_scan(*given, (2, 2)))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_scan")
    @pytest.mark.parametrize("d", [128, 256])
    @pytest.mark.parametrize("size", [(4, 4), (8, 8), (3, 5)], ids=str)
    def test_values_and_gradients_are_those_of_the_plain_scan_in_float64(self, d, size):
        assert_like_plain((37, d, 16, 16, size), "cuda")

    def test_the_same_bits_come_twice(self):
        first, again = (outcome(directional_scan, inputs(74, 128, 16, 16, (4, 4), "cuda"), (4, 4)) for _ in range(2))
        for name, value in first.items():
            assert torch.equal(again[name], value), name

    def test_a_captured_scan_replays_as_it_runs_eagerly(self):
        static, fresh = (inputs(10, 128, 16, 16, (4, 4), "cuda") for _ in range(2))
        for value in fresh:
            value.data.mul_(0.9)
        expected = outcome(directional_scan, fresh, (4, 4))
        weight = torch.randn(10, 16, 128, generator=torch.Generator().manual_seed(0)).cuda()

        def run():
            y = directional_scan(*static, (4, 4))
            return y, *torch.autograd.grad(y, static, weight)

        graph, replayed = captured(run)
        for place, value in zip(static, fresh, strict=True):
            place.data.copy_(value)
        graph.replay()
        for (name, value), ours in zip(expected.items(), replayed, strict=True):
            assert torch.equal(ours, value), name
