"""The fused gate against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch

from interpreter import assert_holds_interpreted, assert_near, captured, compiled, starts_the_interpreter
from s6mod.branch import mixture
from s6mod.branch.mixture import (
    Gate,
    gate,
    gate_weights,
    note_means,
    plain_gate,
    plain_gate_weights,
    plain_note_means,
)


@pytest.fixture
def no_plain_weights(monkeypatch):
    """``gate_weights`` must take the kernels; the plain twin above is already at hand."""
    monkeypatch.setattr(mixture, "plain_gate_weights", lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def no_plain_gate(monkeypatch):
    """So must ``gate`` and ``note_means``."""
    for name in ("plain_gate", "plain_note_means"):
        monkeypatch.setattr(mixture, name, lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def few_programs(device, monkeypatch):
    """A few samples are several for each program backwards, and a few positions several blocks of one or two."""
    monkeypatch.setattr("s6mod.branch.gate_triton.PROGRAMS", 3)
    monkeypatch.setattr("s6mod.branch.gate_triton.TILE", 16)


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


def gate_inputs(batch, positions, channels, patterns, device):
    """X^, weight and bias of the linear map, counts, and gradients for logits and weights."""
    random = torch.Generator().manual_seed(batch * positions * channels * patterns)
    sizes = (batch, positions, channels), (patterns, channels), (patterns,)
    tables = [torch.randn(size, generator=random).to(device) for size in sizes]
    tables[0] += 0.5  # whose mean over many positions is then not near 0
    _, count, grad = inputs(batch, patterns, device)
    return *tables, count, [grad.flip(0), grad]


def gate_outcome(function, X_hat, weight, bias, count, grads, leaky=False):
    """Logits and weights, and the gradients of X^ and the linear map; a gradient that is None does not come."""
    tables = [table.detach().requires_grad_() for table in (X_hat, weight, bias)]
    results = function(*tables, count, leaky)
    wanted = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
    return *results, *torch.autograd.grad([result for result, _ in wanted], tables, [grad for _, grad in wanted])


def assert_gate_like_plain(given, leaky=False):
    *tables, count, grads = given
    ours = gate_outcome(gate, *given, leaky)
    doubles = [table.double() for table in tables], [None if grad is None else grad.double() for grad in grads]
    exactly = gate_outcome(plain_gate, *doubles[0], count, doubles[1], leaky)
    assert_near(ours, exactly, least=1e-6)
    assert all(value.is_contiguous() for value in ours)


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.usefixtures("no_plain_weights")
@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1),
        (9, 8),
        (13, 3),  # patterns are no power of two
        (10, 32),
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


@pytest.mark.usefixtures("no_plain_weights", "no_plain_gate")
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("explore", [False, True])
def test_the_gate_takes_them(noisy, explore, device):
    module = Gate(5, 4, noisy=noisy, leaky=True).to(device)
    X_hat, count = torch.rand(3, 2, 5, device=device), torch.tensor([1, 2, 4], device=device)
    with torch.no_grad():
        logits, weights = module(X_hat, count, explore)
    torch.testing.assert_close(logits, module.linear(X_hat.mean(1)))
    calm = plain_gate_weights(logits, count, leaky=True)
    assert torch.allclose(weights, calm) == (not noisy or not explore)


@pytest.mark.parametrize("other", ["type", "patterns"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.gate_triton.gate_weights", lambda *_: pytest.fail("the kernels were chosen"))
    logits, count, _ = inputs(4, 33 if other == "patterns" else 4, device)
    logits = logits.double() if other == "type" else logits
    assert torch.equal(gate_weights(logits, count), plain_gate_weights(logits, count))


# --- the whole gate -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_plain_gate")
@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 1),
        (9, 4, 16, 8),
        (5, 49, 67, 3),  # no powers of two
        (3, 20, 256, 32),  # positions in two blocks
    ],
    ids=str,
)
def test_the_whole_gate_is_that_of_the_plain_version_in_float64(shape, leaky, device):
    assert_gate_like_plain(gate_inputs(*shape, device), leaky)


@pytest.mark.usefixtures("no_plain_gate", "few_programs")
@pytest.mark.parametrize("batch", [2, 3, 8, 10])
def test_programs_may_take_several_samples_and_blocks_of_positions(batch, device):
    assert_gate_like_plain(gate_inputs(batch, 5, 7, 3, device))


@pytest.mark.usefixtures("no_plain_gate", "few_programs")
@pytest.mark.parametrize("absent", ["logits", "weights"])
def test_logits_or_weights_may_have_no_gradient(absent, device):
    *given, grads = gate_inputs(6, 4, 5, 4, device)
    grads[("logits", "weights").index(absent)] = None
    assert_gate_like_plain((*given, grads))


@pytest.mark.usefixtures("no_plain_gate")
def test_only_what_wants_a_gradient_gets_one(device):
    X_hat, weight, bias, count, grads = gate_inputs(6, 4, 5, 4, device)
    *_, expected, _ = gate_outcome(gate, X_hat, weight, bias, count, grads)
    weight.requires_grad_()
    torch.autograd.backward(gate(X_hat, weight, bias, count), grads)
    assert torch.equal(weight.grad, expected)
    assert X_hat.grad is None
    assert bias.grad is None


@pytest.mark.usefixtures("no_plain_gate")
def test_what_the_gate_is_given_may_lie_in_memory_as_it_likes(device):
    *given, grads = gate_inputs(6, 4, 5, 3, device)
    strided = [table.repeat_interleave(2, dim=-1)[..., ::2] for table in given]
    strided_grads = [grad.T.contiguous().T for grad in grads]
    assert not any(table.is_contiguous() for table in strided + strided_grads)
    ours, expected = gate_outcome(gate, *strided, strided_grads), gate_outcome(gate, *given, grads)
    assert all(map(torch.equal, ours, expected))


@pytest.mark.usefixtures("no_plain_gate")
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_the_counts_of_the_gate_may_be_of_any_type(dtype, device):
    *tables, count, _ = gate_inputs(6, 3, 5, 4, device)
    assert all(map(torch.equal, gate(*tables, count.to(dtype)), gate(*tables, count)))


@pytest.mark.usefixtures("no_plain_gate")
@pytest.mark.filterwarnings("ignore:All-NaN slice")  # from the interpreter
def test_what_is_no_number_in_a_sample_shows_in_this_sample(device):
    *tables, count, _ = gate_inputs(4, 3, 5, 4, device)
    tables[0][2, 1, 3] = torch.nan
    for result in gate(*tables, count):
        assert torch.isnan(result).any(1).tolist() == [False, False, True, False]


@pytest.mark.usefixtures("no_plain_gate", "few_programs")
def test_the_same_bits_come_twice(device):
    first, again = (gate_outcome(gate, *gate_inputs(10, 5, 7, 3, device)) for _ in range(2))
    assert all(map(torch.equal, first, again))


def test_a_linear_map_of_another_width_is_refused(device):
    X_hat, weight, bias, count, _ = gate_inputs(3, 2, 5, 4, device)
    for wrong in (weight[:, :4], torch.cat([weight, weight], 1)):
        with pytest.raises(RuntimeError, match="shape"):
            gate(X_hat, wrong, bias, count)


@pytest.mark.parametrize("other", ["type", "patterns", "channels"])
def test_a_gate_that_does_not_suit_the_kernels_is_left_to_the_plain_version(other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.gate_triton.gate", lambda *_: pytest.fail("the kernels were chosen"))
    shape = {"patterns": (3, 2, 5, 33), "channels": (3, 2, 257, 4)}.get(other, (3, 2, 5, 4))
    *tables, count, _ = gate_inputs(*shape, device)
    tables = [table.double() for table in tables] if other == "type" else tables
    assert all(map(torch.equal, gate(*tables, count), plain_gate(*tables, count)))


# --- what is noted of it --------------------------------------------------------------------------------------


def noted(function, count, weights):
    """The means, written over other numbers."""
    means = torch.full((), 7.0, device=weights.device), torch.full(weights.shape[1:], 7.0, device=weights.device)
    function(count, weights, *means)
    return means


@pytest.mark.usefixtures("no_plain_gate")
@pytest.mark.parametrize("shape", [(1, 1), (9, 8), (37, 3), (5, 40)], ids=str)
@pytest.mark.parametrize("block", [4, 1024])
def test_means_are_those_of_the_plain_version(shape, block, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.gate_triton.ROWS", block)
    weights, count, _ = inputs(*shape, device)
    torch.testing.assert_close(noted(note_means, count, weights), noted(plain_note_means, count, weights))


@pytest.mark.usefixtures("no_plain_gate")
def test_means_are_noted_of_what_has_a_gradient_or_lies_in_memory_as_it_likes(device):
    weights, count, _ = inputs(6, 4, device)
    strided = [table.repeat_interleave(2, dim=-1)[..., ::2] for table in (count, weights.requires_grad_())]
    means = noted(note_means, *strided)
    assert all(map(torch.equal, means, noted(note_means, count, weights)))
    assert not any(mean.requires_grad for mean in means)


@pytest.mark.parametrize("other", ["type", "rows"])
def test_means_that_do_not_suit_the_kernel_are_left_to_the_plain_version(other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.gate_triton.MOST_ROWS", 8)
    monkeypatch.setattr("s6mod.branch.gate_triton.note_means", lambda *_: pytest.fail("the kernels were chosen"))
    weights, count, _ = inputs(9 if other == "rows" else 4, 3, device)
    means = [torch.zeros((), device=device), torch.zeros(3, device=device)]
    if other == "type":
        weights, count, *means = (table.double() for table in (weights, count, *means))
    note_means(count, weights, *means)
    assert torch.equal(means[0], count.mean(0))
    assert torch.equal(means[1], weights.mean(0))


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_weights")
    @pytest.mark.parametrize("leaky", [False, True])
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("shape", [(74, 8), (400, 16), (148, 32)], ids=str)
    def test_weights_and_gradients_are_those_of_the_plain_version_in_float64(self, shape, ties, leaky):
        assert_like_plain(inputs(*shape, "cuda", ties), leaky)

    @pytest.mark.usefixtures("no_plain_gate")
    @pytest.mark.parametrize("leaky", [False, True])
    @pytest.mark.parametrize(
        "shape", [(74, 16, 128, 8), (400, 49, 100, 16), (148, 64, 256, 32), (20, 16, 128, 5)], ids=str
    )
    def test_the_whole_gate_is_that_of_the_plain_version_in_float64(self, shape, leaky):
        assert_gate_like_plain(gate_inputs(*shape, "cuda"), leaky)

    @pytest.mark.usefixtures("no_plain_gate")
    @pytest.mark.parametrize("shape", [(74, 8), (2500, 32)], ids=str)
    def test_means_are_those_of_the_plain_version(self, shape):
        weights, count, _ = inputs(*shape, "cuda")
        torch.testing.assert_close(noted(note_means, count, weights), noted(plain_note_means, count, weights))

    def test_the_same_bits_come_twice(self):
        first, again = (gate_outcome(gate, *gate_inputs(400, 16, 128, 8, "cuda")) for _ in range(2))
        assert all(map(torch.equal, first, again))

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.branch import gate_triton

        def run(batch):
            logits, count, grad = inputs(batch, 8, "cuda")
            outcome(gate_weights, logits, count, grad, leaky=False)
            noted(note_means, count, logits)
            gate_outcome(gate, *gate_inputs(batch, 16, 128, 8, "cuda"))

        run(74)
        before = compiled(gate_triton)
        for batch in (1, 2, 16, 37, 400):
            run(batch)
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

    @pytest.mark.parametrize("absent", [None, "logits", "weights"])
    def test_a_captured_whole_gate_replays_as_it_runs_eagerly(self, absent):
        *given, grads = gate_inputs(74, 16, 128, 8, "cuda")
        fresh, fresh_grads = [given[0].flip(0), 0.9 * given[1], given[2] + 1, given[3].flip(0)], [-2 * g for g in grads]
        if absent is not None:
            place = ("logits", "weights").index(absent)
            grads[place] = fresh_grads[place] = None
        expected = gate_outcome(gate, *fresh, fresh_grads)
        expected += noted(note_means, fresh[3], expected[1])
        means = torch.zeros((), device="cuda"), torch.zeros(8, device="cuda")

        def run():
            results = gate_outcome(gate, *given, grads)
            note_means(given[3], results[1], *means)
            return results + means

        graph, replayed = captured(run)
        for place, value in zip(given + grads, fresh + fresh_grads, strict=True):
            if place is not None:
                place.copy_(value)
        graph.replay()
        assert all(map(torch.equal, replayed, expected))
