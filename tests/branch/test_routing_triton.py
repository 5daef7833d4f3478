"""The fused routing against its plain twin: on a CUDA device, and in Triton's interpreter everywhere."""

import math

import pytest
import torch

from interpreter import assert_holds_interpreted, compiled, starts_the_interpreter
from s6mod.branch import Targets, routing
from s6mod.branch.routing import Routing, plain_update

BUFFERS = ("prototypes", "seen", "sigma")


@pytest.fixture
def no_plain_update(monkeypatch):
    """``Routing.update`` must take the kernels."""
    monkeypatch.setattr(routing, "plain_update", lambda *_: pytest.fail("the kernels were not chosen"))


@pytest.fixture
def small_blocks(device, monkeypatch):
    """A few classes, columns and samples are several blocks, and several of those a program's."""
    sizes = {"SAMPLES": 4, "COLUMNS": 4, "TILE": 2, "STRIP": 4, "PROGRAMS": 20, "CLASSES": 4, "ROWS": 2}
    for name, size in sizes.items():
        monkeypatch.setattr(f"s6mod.branch.routing_triton.{name}", size)


class Fused(Routing):
    """Must take the kernels for N, too."""

    def count(self, sigma):
        pytest.fail("the kernels were not chosen")


def batches(classes, columns, sizes, device):
    """Features about 4 apart, and targets: of one class, then of more, some samples mixed; at last all are mixed."""
    random = torch.Generator().manual_seed(columns)
    last = len(sizes) - 1
    for number, size in enumerate(sizes):
        x = torch.randn(size, columns, generator=random) * (8 / columns) ** 0.5 + 5
        met = min(1 + classes * number // last, classes)
        labels, partners = torch.randint(met, (2, size), generator=random)
        mix = torch.rand(size, generator=random)
        if number < last:
            mix *= torch.arange(size) % 3 == 2
        yield x.to(device), Targets(labels.to(device), partners.to(device), mix.to(device))


def given(targets, classes, dtype=torch.float32):
    q = targets.soft(classes).to(dtype)
    return q, targets.unmixed(q)


def assert_like_plain(classes, columns, sizes, device, **options):
    """Buffers and N after each of the updates; N may differ where E sigma is within rounding of a whole number."""
    options = {"lambda0": 0.2, **options}
    ours = Fused(classes, columns, 50, **options).to(device)
    exact = Routing(classes, columns, 50, **options).to(device, torch.float64)
    places = [getattr(ours, name).data_ptr() for name in BUFFERS]
    for x, targets in batches(classes, columns, sizes, device):
        q, members = given(targets, classes)
        ours.update(x, members)
        count = ours.count_for_targets(q)
        q, members = given(targets, classes, torch.float64)
        plain_update(exact, x.double(), members)
        assert torch.equal(ours.seen, exact.seen)
        torch.testing.assert_close(ours.prototypes.double(), exact.prototypes, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(ours.sigma.double(), exact.sigma, rtol=5e-6, atol=0)
        fewest, most = (exact.count(q @ exact.sigma * factor) for factor in (1 - 1e-5, 1 + 1e-5))
        assert count.dtype == torch.float32
        assert ((fewest <= count) & (count <= most)).all()
    assert [getattr(ours, name).data_ptr() for name in BUFFERS] == places
    if classes > 2:
        assert len(ours.sigma.unique()) > 2  # else little was compared


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


@pytest.mark.usefixtures("no_plain_update", "small_blocks")
@pytest.mark.parametrize(("aggregate", "rounding"), [("mean", "ceil"), ("max", "round")])
@pytest.mark.parametrize(("classes", "columns"), [(5, 11), (8, 16), (2, 1), (9, 3)])
def test_buffers_and_counts_are_those_of_the_plain_version(classes, columns, aggregate, rounding, device):
    assert_like_plain(classes, columns, (3, 7, 1, 9, 6), device, aggregate=aggregate, rounding=rounding)


@pytest.mark.usefixtures("no_plain_update")
def test_blocks_as_in_training_give_the_plain_version_too(device):
    assert_like_plain(20, 200, (5, 40, 33, 20), device)


@pytest.mark.usefixtures("no_plain_update")
def test_one_class_alone_is_fully_uncertain(device):
    made = Fused(5, 3, 9).to(device)
    q, members = given(Targets(torch.tensor([3, 3], device=device)), 5)
    for _ in range(2):
        made.update(torch.rand(2, 3, device=device), members)
        assert made.sigma.tolist() == [1] * 5
    assert made.seen.tolist() == [False, False, False, True, False]
    assert made.count_for_targets(q).tolist() == [9, 9]


@pytest.mark.usefixtures("no_plain_update")
def test_the_first_batch_is_copied_and_what_lay_in_the_prototype_forgotten(device):
    made = Fused(2, 3, 9).to(device)
    made.prototypes.fill_(1e9)
    x = torch.rand(1, 3, device=device)
    made.update(x, torch.tensor([[0.0, 1.0]], device=device))
    assert torch.equal(made.prototypes[1:], x)
    assert (made.prototypes[0] == 1e9).all()


@pytest.mark.usefixtures("no_plain_update")
def test_a_sample_moves_no_prototype_but_that_of_its_class(device):
    made = Fused(3, 4, 9).to(device)
    x = torch.rand(3, 4, device=device)
    x[1] = torch.nan  # of no class
    made.update(x, torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1]], device=device))
    assert torch.equal(made.prototypes[[0, 2]], x[[0, 2]])
    assert made.prototypes[1].tolist() == [0] * 4
    assert (made.sigma < 1).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("rounding", "expected"), [("ceil", [1, 1, 1, 2, 2, 3, 4, 4]), ("round", [1, 1, 1, 2, 2, 2, 4, 4])]
)
def test_whole_numbers_stay_and_halves_go_to_the_even_one(rounding, expected, device):
    made = Fused(8, 1, 4, rounding=rounding).to(device)
    made.sigma.copy_(torch.tensor([0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.875, 1.0000001]))  # E sigma = 0, 1/2, 1, ...
    assert made.count_for_targets(torch.eye(8, device=device)).tolist() == expected


@pytest.mark.usefixtures("no_plain_update")
def test_distances_of_long_nearly_equal_features_keep_their_digits(device):
    made = Fused(2, 4000, 8, lambda0=1.0).to(device)
    x = 5 * torch.randn(1, 4000, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    x[1, 7] += 0.5
    made.update(x.to(device), torch.eye(2, device=device))
    torch.testing.assert_close(made.sigma.cpu(), torch.full((2,), math.exp(-0.5)))


@pytest.mark.usefixtures("no_plain_update")
def test_inputs_may_have_any_shape_lie_as_they_like_and_carry_gradients(device):
    one, other = (Fused(3, 12, 50, lambda0=1.0).to(device) for _ in range(2))
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    q = torch.eye(3, device=device)[[0, 1, 1, 2]]
    flat = x.detach().flatten(1)
    flat_across, across = flat.T.contiguous().T, q.T.contiguous().T
    assert not flat_across.is_contiguous()
    one.update(flat, q), one.update(flat, q)
    other.update(x.contiguous(memory_format=torch.channels_last), across), other.update(flat_across, q)
    for name in BUFFERS:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    count = one.count_for_targets(q)
    assert len(count.unique()) == 3
    assert torch.equal(other.count_for_targets(across), count)
    assert not other.prototypes.requires_grad


def test_tables_that_do_not_fit_are_refused_and_not_read(device):
    made = Routing(3, 4, 9).to(device)
    x, q = torch.rand(2, 4, device=device), torch.eye(3, device=device)[:2]
    for wrong in ((x[:, :3], q), (x[:1], q), (x, q[:, :2])):
        with pytest.raises(AssertionError, match="prototypes of"):
            made.update(*wrong)
    with pytest.raises(AssertionError, match="q of 2 classes, sigma of 3"):
        made.count_for_targets(q[:, :2])


# --- what is left to the plain version ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "dtype"), [({"distance": "relative"}, torch.float32), ({}, torch.float64)], ids=["relative", "float64"]
)
def test_what_the_kernels_do_not_suit_is_left_to_the_plain_version(options, dtype, device):
    one, other = (Routing(4, 3, 9, lambda0=0.2, **options).to(device, dtype) for _ in range(2))
    for x, targets in batches(4, 3, (2, 6, 6), device):
        q, members = given(targets, 4, dtype)
        one.update(x.to(dtype), members)
        plain_update(other, x.to(dtype), members)
        assert one.count_for_targets(q).dtype == dtype
    for (name, ours), theirs in zip(one.named_buffers(), other.buffers(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize(
    ("shape", "suited"),
    [((1024, 2**21 - 1), True), ((1024, 2**21), False), ((2, 2**23 - 128), True), ((2, 2**23), False)],
    ids=str,
)
def test_prototypes_with_more_places_than_the_kernels_can_count_are_left_to_the_plain_version(shape, suited, device):
    made = Routing(2, 1, 9).to(device)
    made.prototypes = made.prototypes[:1, :1].expand(shape)  # large on paper only
    assert (made._kernels() is not None) == suited


def test_a_fixed_number_of_patterns_is_that_number(device):
    made = Routing(3, 4, 9, fixed_patterns=6).to(device)
    assert made.count_for_targets(torch.eye(3, device=device)[:2]).tolist() == [6, 6]


# --- sizes as in training, on a CUDA device only --------------------------------------------------------------


def step(made, x, targets):
    q, members = given(targets, len(made.seen))
    made.update(x, members)
    return made.count_for_targets(q)


@pytest.mark.gpu
class TestOnCuda:
    @pytest.mark.usefixtures("no_plain_update")
    @pytest.mark.parametrize("aggregate", ["mean", "max"])
    @pytest.mark.parametrize(
        ("classes", "columns"), [(100, 2048), (10, 128), (200, 16384), (7, 1001), (2, 130), (256, 512)]
    )
    def test_buffers_and_counts_are_those_of_the_plain_version(self, classes, columns, aggregate):
        assert_like_plain(classes, columns, (1, 10, 74, 148, 74, 400, 74), "cuda", aggregate=aggregate)

    def test_the_same_bits_come_twice(self):
        one, other = (Fused(100, 2048, 50).cuda() for _ in range(2))
        for x, targets in batches(100, 2048, (10, 74, 384, 74, 74), "cuda"):
            assert torch.equal(step(one, x, targets), step(other, x, targets))
        for name in BUFFERS:
            assert torch.equal(getattr(one, name), getattr(other, name)), name

    def test_another_batch_size_compiles_nothing(self):
        from s6mod.branch import routing_triton

        made = Fused(100, 2048, 50).cuda()
        sizes = (74, 1, 2, 16, 37, 384)
        for number, (x, targets) in enumerate(batches(100, 2048, sizes, "cuda")):
            step(made, x, targets)
            if number == 0:
                before = compiled(routing_triton)
        assert compiled(routing_triton) == before > 0

    def test_captured_updates_replay_as_they_run_eagerly(self):
        eager, captured = (Fused(100, 2048, 50, lambda0=0.2).cuda() for _ in range(2))
        first, *later = batches(100, 2048, (74,) * 5, "cuda")
        static_x, static_q, static_members = first[0].clone(), *given(first[1], 100)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(captured, *first)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured.update(static_x, static_members)
            count = captured.count_for_targets(static_q)

        step(eager, *first)
        for x, targets in later:
            q, members = given(targets, 100)
            for place, value in ((static_x, x), (static_q, q), (static_members, members)):
                place.copy_(value)
            graph.replay()
            assert torch.equal(count, step(eager, x, targets))
            for name in BUFFERS:
                assert torch.equal(getattr(captured, name), getattr(eager, name)), name

    def test_many_classes_are_left_to_the_plain_version_which_is_captured_too(self):
        classes, options = 1000, {"lambda0": 0.2}
        captured = Routing(classes, 512, 50, **options).cuda()
        exact = Routing(classes, 512, 50, **options).cuda().double()
        first, *later = batches(classes, 512, (74,) * 5, "cuda")
        static_x, static_q, static_members = first[0].clone(), *given(first[1], classes)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(captured, *first)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured.update(static_x, static_members)
            count = captured.count_for_targets(static_q)

        exact.update(first[0].double(), given(first[1], classes, torch.float64)[1])
        for x, targets in later:
            for place, value in zip((static_x, static_q, static_members), (x, *given(targets, classes)), strict=True):
                place.copy_(value)
            graph.replay()
            q, members = given(targets, classes, torch.float64)
            exact.update(x.double(), members)
            fewest, most = (exact.count(q @ exact.uncertainty() * factor) for factor in (1 - 1e-4, 1 + 1e-4))
            assert ((fewest <= count) & (count <= most)).all()
            assert torch.equal(captured.seen, exact.seen)
        assert len(count.unique()) > 2  # else little was compared
