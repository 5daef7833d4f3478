"""The fused terms against their plain twins: on a CUDA device, and in Triton's interpreter everywhere."""

import pytest
import torch

from interpreter import assert_holds_interpreted, assert_near, captured, compiled, starts_the_interpreter
from s6mod.branch import losses
from s6mod.branch.losses import divergence, dot_regression, plain_divergence, plain_dot_regression, plain_z_loss, z_loss

# Each with the plain function of the same arguments, and how many tables come in and want a gradient.
TERMS = {
    "dr": (dot_regression, plain_dot_regression, 2, 1),
    "pq": (divergence, plain_divergence, 2, 2),
    "qp": (lambda p, q: divergence(p, q, "qp"), lambda p, q: plain_divergence(q, p), 2, 2),
    "z": (z_loss, plain_z_loss, 1, 1),
}
UPSTREAM = -2.5  # gradient that comes from above: neither 1 nor positive


@pytest.fixture(params=TERMS)
def term(request):
    return request.param


@pytest.fixture
def no_plain_term(monkeypatch):
    """The terms must take the kernels; the plain twins above are already at hand."""
    for name in ("plain_dot_regression", "plain_divergence", "plain_z_loss"):
        monkeypatch.setattr(losses, name, lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def small_tiles(device, monkeypatch):
    """A few rows are several tiles forwards and several programs backwards."""
    monkeypatch.setattr("s6mod.branch.losses_triton.TILE", 64)
    monkeypatch.setattr("s6mod.branch.losses_triton.GRADIENT_TILE", 32)


def inputs(term, rows, columns, device):
    """Tables of a few units of size; the second one of ``dr`` is a distribution, every second row of it one-hot."""
    random = torch.Generator().manual_seed(rows * columns)
    tables = [3 * torch.randn(rows, columns, generator=random) for _ in range(TERMS[term][2])]
    if term == "dr":
        one_hot = torch.eye(columns)[torch.randint(columns, (rows,), generator=random)]
        tables = [torch.rand(rows, columns, generator=random) * 2 - 1, tables[1].softmax(1)]
        tables[1][::2] = one_hot[::2]
    return [table.to(device) for table in tables]


def outcome(function, tables, wanted):
    """The term and, for an upstream gradient that is not 1, the gradients of the ``wanted`` first tables."""
    tables = [table.clone().requires_grad_(number < wanted) for number, table in enumerate(tables)]
    value = function(*tables)
    return value, *torch.autograd.grad(value, tables[:wanted], torch.full_like(value, UPSTREAM))


def assert_like_plain(term, tables):
    ours_of, plain, _, wanted = TERMS[term]
    ours = outcome(ours_of, tables, wanted)
    exactly = outcome(plain, [table.double() for table in tables], wanted)
    assert_near(ours, exactly)


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.usefixtures("no_plain_term", "small_tiles")
@pytest.mark.parametrize(
    "shape",
    [
        (1, 2),
        (37, 5),  # five tiles of 8 rows, the last not full
        (8, 8),  # exactly one tile
        (3, 32),  # a row to a program
        (9, 1),  # of which a divergence is 0
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_the_plain_terms_in_float64(term, shape, device):
    assert_like_plain(term, inputs(term, *shape, device))


@pytest.mark.usefixtures("no_plain_term")
@pytest.mark.parametrize("where", ["last rows", "other columns", "transposed"])
def test_tables_may_be_parts_of_others(term, where, device):
    rows, columns = {"last rows": (12, 3), "other columns": (7, 6), "transposed": (3, 7)}[where]
    cut = {"last rows": lambda t: t[-7:], "other columns": lambda t: t[:, ::2], "transposed": lambda t: t.T}[where]
    wholes = inputs(term, rows, columns, device)
    function, _, _, wanted = TERMS[term]
    parts = outcome(lambda *tables: function(*map(cut, tables)), wholes, wanted)
    alone = outcome(function, [cut(table).contiguous() for table in wholes], wanted)
    assert torch.equal(parts[0], alone[0])
    for gradient, expected in zip(parts[1:], alone[1:], strict=True):
        assert torch.equal(cut(gradient), expected)
        assert gradient.count_nonzero() == expected.count_nonzero() > 0


@pytest.mark.usefixtures("no_plain_term")
@pytest.mark.parametrize("direction", ["pq", "qp"])
def test_divergence_of_very_confident_logits_is_finite(direction, device):
    base = torch.tensor([[1000.0, 0.0, -1000.0]], device=device, requires_grad=True)
    value = divergence(base, torch.zeros(1, 3, device=device), direction)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(base.grad).all()


@pytest.mark.usefixtures("no_plain_term")
def test_one_side_of_the_divergence_may_want_no_gradient(device):
    base, branch = inputs("pq", 4, 3, device)
    _, expected = outcome(divergence, [base, branch], 2)[1:]
    branch.requires_grad_()
    (UPSTREAM * divergence(base, branch)).backward()
    assert base.grad is None
    torch.testing.assert_close(branch.grad, expected)


@pytest.mark.usefixtures("no_plain_term")
def test_what_is_no_number_shows(term, device):
    tables = inputs(term, 5, 4, device)
    tables[0][3, 1] = torch.nan
    assert torch.isnan(TERMS[term][0](*tables))


@pytest.mark.parametrize("other", ["type", "size"])
def test_what_does_not_suit_the_kernels_is_left_to_the_plain_terms(term, other, device, monkeypatch):
    monkeypatch.setattr("s6mod.branch.losses_triton.TILES", 1)
    monkeypatch.setattr("s6mod.branch.losses_triton._sum", lambda *_: pytest.fail("the kernels were chosen"))
    tables = inputs(term, 129, 3, device) if other == "size" else [t.double() for t in inputs(term, 4, 3, device)]
    function, plain, *_ = TERMS[term]
    assert torch.equal(function(*tables), plain(*tables))


def test_targets_that_want_a_gradient_get_it_from_the_plain_term(device):
    cosines, q = inputs("dr", 5, 3, device)
    q = q.softmax(1)  # whose root has a slope everywhere
    ours, theirs = (outcome(function, [cosines, q], 2) for function in (dot_regression, plain_dot_regression))
    assert torch.equal(ours[2], theirs[2])
    assert ours[2].abs().sum() > 0


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_term")
    @pytest.mark.parametrize("shape", [(74, 100), (400, 200), (148, 10), (384, 8), (10, 32)], ids=str)
    def test_values_and_gradients_are_those_of_the_plain_terms_in_float64(self, term, shape):
        assert_like_plain(term, inputs(term, *shape, "cuda"))

    def test_the_same_bits_come_twice(self, term):
        function, _, _, wanted = TERMS[term]
        first, again = (outcome(function, inputs(term, 400, 200, "cuda"), wanted) for _ in range(2))
        assert all(map(torch.equal, first, again))

    def test_another_batch_size_compiles_nothing(self, term):
        from s6mod.branch import losses_triton

        function, _, _, wanted = TERMS[term]
        outcome(function, inputs(term, 74, 100, "cuda"), wanted)
        before = compiled(losses_triton)
        for rows in (1, 2, 16, 37, 148, 400):
            outcome(function, inputs(term, rows, 100, "cuda"), wanted)
        assert compiled(losses_triton) == before > 0

    def test_captured_terms_replay_as_they_run_eagerly(self, term):
        function, _, _, wanted = TERMS[term]
        static = inputs(term, 74, 100, "cuda")
        fresh = [table.flip(0) * 0.9 for table in static]
        expected = outcome(function, fresh, wanted)
        upstream = torch.ones((), device="cuda")

        def run():
            value = function(*static)
            return value, *torch.autograd.grad(value, static[:wanted], upstream)

        for table in static[:wanted]:
            table.requires_grad_()
        graph, replayed = captured(run)
        for place, value in zip(static, fresh, strict=True):
            place.data.copy_(value)
        upstream.fill_(UPSTREAM)  # read by the replay, not when it was captured
        graph.replay()
        assert all(map(torch.equal, replayed, expected))
