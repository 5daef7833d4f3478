"""The fused gate against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch

from interpreter import assert_holds_interpreted, captured, compiled, on_cuda, starts_the_interpreter
from s6mod.branch import mixture
from s6mod.branch.mixture import Gate, gate_weights, plain_gate_weights


@pytest.fixture
def no_plain_weights(monkeypatch):
    """``gate_weights`` must take the kernels; the plain twin above is already at hand."""
    monkeypatch.setattr(mixture, "plain_gate_weights", lambda *_: pytest.fail("the kernels were not chosen"))


def inputs(batch, patterns, device, ties=False):
    """Logits, in whole numbers if there shall be ``ties``, counts from 1 to E and beyond, and a gradient."""
    random = torch.Generator().manual_seed(batch * patterns)
    logits = 2 * torch.randn(batch, patterns, generator=random)
    count = 1.0 + torch.arange(batch) % (patterns + 1)
    grad = torch.randn(batch, patterns, generator=random)
    return (logits.round() if ties else logits).to(device), count.to(device), grad.to(device)


def outcome(function, logits, count, grad, leaky):
    """The weights and the gradient of the logits."""
    logits = logits.clone().requires_grad_()
    weights = function(logits, count, leaky)
    return weights, *torch.autograd.grad(weights, logits, grad)


def assert_like_plain(given, leaky):
    logits, count, grad = given
    ours = outcome(gate_weights, logits, count, grad, leaky)
    exactly = outcome(plain_gate_weights, logits.double(), count, grad.double(), leaky)
    for value, exact in zip(ours, exactly, strict=True):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    kept = plain_gate_weights(logits, count) > 0
    weights, gradient = ours
    assert torch.equal(weights > 0, kept | leaky)
    assert not gradient[~kept].any()


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter():
    assert_holds_interpreted(__file__)


@pytest.mark.usefixtures("no_plain_weights")
@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1),
        (9, 8),
        (140, 3),  # three programs, the last not full; patterns are no power of two
        (40, 32),
    ],
    ids=str,
)
def test_weights_and_gradients_are_those_of_the_plain_version_in_float64(shape, ties, leaky, device):
    assert_like_plain(inputs(*shape, device, ties), leaky)


@pytest.mark.usefixtures("no_plain_weights")
@pytest.mark.parametrize("leaky", [False, True])
def test_of_equal_logits_the_first_are_kept(leaky, device):
    logits = torch.tensor([[2.0, 3.0, 2.0, 2.0, -1.0]], device=device)
    _, gradient = outcome(gate_weights, logits, torch.tensor([3], device=device), logits.cos(), leaky)
    assert (gradient != 0).tolist() == [[True, True, True, False, False]]


@pytest.mark.usefixtures("no_plain_weights")
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_counts_may_be_of_any_type(dtype, device):
    logits, count, _ = inputs(6, 4, device)
    assert torch.equal(gate_weights(logits, count.to(dtype)), gate_weights(logits, count))
    assert (gate_weights(logits, count.to(dtype)) > 0).sum(1).tolist() == [1, 2, 3, 4, 4, 1]


@pytest.mark.usefixtures("no_plain_weights")
def test_logits_counts_and_gradients_may_lie_in_memory_as_they_like(device):
    given = inputs(6, 4, device)
    strided = [table.repeat_interleave(2, dim=-1)[..., ::2] for table in given]
    assert not any(table.is_contiguous() for table in strided)
    # Not by outcome, whose clone would lie otherwise.
    strided[0].requires_grad_()
    weights = gate_weights(strided[0], strided[1])
    expected = outcome(gate_weights, *given, leaky=False)
    assert torch.equal(weights, expected[0])
    assert torch.equal(*torch.autograd.grad(weights, strided[0], strided[2]), expected[1])


@pytest.mark.usefixtures("no_plain_weights")
@pytest.mark.parametrize("leaky", [False, True])
def test_what_is_no_number_shows(leaky, device):
    logits, count, _ = inputs(4, 3, device)
    logits[2, 1] = torch.nan
    assert torch.isnan(gate_weights(logits, count, leaky)).any(1).tolist() == [False, False, True, False]


@pytest.mark.usefixtures("no_plain_weights")
def test_the_gate_takes_them(device):
    gate = Gate(5, 4, leaky=True).to(device)
    logits, weights = gate(torch.rand(3, 2, 5, device=device), torch.tensor([1, 2, 4], device=device))
    torch.testing.assert_close(weights, plain_gate_weights(logits, torch.tensor([1, 2, 4], device=device), leaky=True))


@pytest.mark.parametrize("other", ["type", "patterns"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.gate_triton.gate_weights", lambda *_: pytest.fail("the kernels were chosen"))
    logits, count, _ = inputs(4, 33 if other == "patterns" else 4, device)
    logits = logits.double() if other == "type" else logits
    assert torch.equal(gate_weights(logits, count), plain_gate_weights(logits, count))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@on_cuda
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_weights")
    @pytest.mark.parametrize("leaky", [False, True])
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("shape", [(74, 8), (400, 16), (148, 32)], ids=str)
    def test_weights_and_gradients_are_those_of_the_plain_version_in_float64(self, shape, ties, leaky):
        assert_like_plain(inputs(*shape, "cuda", ties), leaky)

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.branch import gate_triton

        outcome(gate_weights, *inputs(74, 8, "cuda"), leaky=False)
        before = compiled(gate_triton)
        for batch in (1, 2, 16, 37, 400):
            outcome(gate_weights, *inputs(batch, 8, "cuda"), leaky=False)
        assert compiled(gate_triton) == before > 0

    def test_a_captured_gate_replays_as_it_runs_eagerly(self):
        logits, count, grad = inputs(74, 8, "cuda")
        fresh = logits.flip(0), count.flip(0), grad.flip(0)
        expected = outcome(gate_weights, *fresh, leaky=False)

        def run():
            weights = gate_weights(logits, count)
            return weights, *torch.autograd.grad(weights, logits, grad)

        logits.requires_grad_()
        graph, replayed = captured(run)
        for place, value in zip((logits, count, grad), fresh, strict=True):
            place.data.copy_(value)
        graph.replay()
        assert all(map(torch.equal, replayed, expected))
