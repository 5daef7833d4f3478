import pytest
import torch
from torch.nn import functional as F

from s6mod.methods.prototypes import class_means, draw_pairs, equilibrium_loss

# --- equilibrium ----------------------------------------------------------------------------------------------


def projections(labels, seed=0):
    z = torch.randn(2, len(labels), 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(z, dim=2).requires_grad_()


def equilibrium(z, labels, num_classes=7, temperature=0.5):
    (p1, present), (p2, _) = (class_means(view, labels, num_classes) for view in z)
    return equilibrium_loss(p1, p2, present, temperature, 1e-12)


def equilibrium_by_loops(z, labels, temperature=0.5):
    classes = sorted(set(labels.tolist()))
    p = [F.normalize(view[labels == c].mean(0), dim=0) for view in z for c in classes]
    k, losses = len(classes), []
    for i in range(2 * k):
        e = [torch.exp(p[i] @ p[j] / temperature) for j in range(2 * k)]
        losses.append(-torch.log(e[(i + k) % (2 * k)] / sum(e[j] for j in range(2 * k) if j != i)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [4, 4, 1, 6, 1, 4], [3, 3, 5]])
def test_equilibrium_is_that_of_direct_loops_with_its_gradient_to_both_views(labels):
    labels = torch.tensor(labels)
    ours, theirs = projections(labels), projections(labels)
    a, b = equilibrium(ours, labels), equilibrium_by_loops(theirs, labels)
    torch.testing.assert_close(a, b)
    a.backward(), b.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert (ours.grad.abs().amax((1, 2)) > 0).all()


def test_equilibrium_of_one_class_is_zero_and_absent_classes_change_nothing():
    z = projections(torch.zeros(4))
    alone = equilibrium(z, torch.full((4,), 2))
    assert abs(alone) < 1e-12
    labels = torch.tensor([0, 2, 1, 2])
    few, many = equilibrium(z, labels, num_classes=3), equilibrium(z, labels, num_classes=50)
    torch.testing.assert_close(few, many)
    (gradient,) = torch.autograd.grad(many, z)
    assert gradient.isfinite().all()


def test_equilibrium_stays_in_full_precision_under_autocast():
    labels = torch.tensor([0, 2, 1, 2])
    z = projections(labels).detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        inside = equilibrium(z, labels)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, equilibrium(z, labels))


# --- pairs of classes -----------------------------------------------------------------------------------------


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def in_order(num_classes):
    return torch.arange(num_classes)


def times_of(pairs):
    """How often each unordered pair of classes came."""
    found = {}
    for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
        found[frozenset(pair)] = found.get(frozenset(pair), 0) + 1
    return found


def rounded(mu, present, count):
    """round(count * softmax of 1 / distance), pair by pair."""
    pairs = [(i, j) for i in present for j in present if i < j]
    weight = torch.stack([1 / (mu[i] - mu[j]).norm() for i, j in pairs]).softmax(0)
    return {frozenset(pair): round(float(w) * count) for pair, w in zip(pairs, weight, strict=True)}


@pytest.mark.parametrize("count", [0, 1, 7, 16])
@pytest.mark.parametrize("present", [(1, 4), (0, 2, 5, 6), tuple(range(9))])
def test_counts_are_rounded_weights_repaired_by_one_on_distinct_pairs_to_the_exact_number(count, present, prototypes):
    for seed in range(10):
        mu = prototypes(9, present, seed)
        times, expected = times_of(draw_pairs(mu, in_order(9), count, random(seed))), rounded(mu, present, count)
        assert sum(times.values()) == count
        assert times.keys() <= expected.keys()
        missing = count - sum(expected.values())
        change = [times.get(pair, 0) - before for pair, before in expected.items()]
        assert sorted(set(change) - {0}) == ([] if missing == 0 else [1 if missing > 0 else -1])
        assert sum(map(abs, change)) == abs(missing)


@pytest.mark.parametrize("count", [2, 4])  # round(2 / 6) = 0, so two are added; round(4 / 6) = 1: two are taken
def test_what_is_missing_or_too_much_is_repaired_at_random(count):
    corners = torch.eye(4)  # six pairs, all equally far
    found = [times_of(draw_pairs(corners, in_order(4), count, random(seed))) for seed in range(400)]
    assert all(set(times.values()) == {1} for times in found)
    for pair in torch.combinations(torch.arange(4)).tolist():
        assert sum(frozenset(pair) in times for times in found) / 400 == pytest.approx(count / 6, abs=0.08)


def test_too_much_is_taken_only_from_pairs_that_came():
    mu = torch.cat([0.1 * torch.eye(3), torch.zeros(1, 3)])
    mu = torch.cat([mu, torch.tensor([[1.0], [1.0], [1.0], [-1.0]])], dim=1)  # three close together, one far
    # round(2 / 3) = 1 of three pairs and 0 of the three others: one is too much
    found = [times_of(draw_pairs(mu, in_order(4), 2, random(seed))) for seed in range(200)]
    assert all(set(times.values()) == {1} for times in found)
    for pair, share in (((0, 1), 2 / 3), ((0, 2), 2 / 3), ((1, 2), 2 / 3), ((0, 3), 0), ((1, 3), 0), ((2, 3), 0)):
        assert sum(frozenset(pair) in times for times in found) / 200 == pytest.approx(share, abs=0.1)


def test_close_prototypes_come_more_often():
    mu = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])  # distances 0.2, 1.41, 1.28
    times = times_of(draw_pairs(mu, in_order(3), 1000, random()))
    weight = torch.tensor([1 / 0.2, 1 / 2**0.5, 1 / 1.64**0.5]).softmax(0) * 1000
    found = torch.tensor([times[frozenset(pair)] for pair in ((0, 1), (0, 2), (1, 2))])
    assert (found - weight).abs().max() <= 1.5


def test_equal_prototypes_are_just_very_close():
    mu = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert times_of(draw_pairs(mu, in_order(3), 9, random())) == {frozenset((0, 1)): 9}


def test_the_first_class_is_the_earlier_one_in_the_class_order_and_a_pair_keeps_its_number(prototypes):
    position = torch.tensor([3, 0, 4, 1, 2])
    pairs = draw_pairs(prototypes(5, range(5)), position, 40, random())
    assert (position[pairs.first] < position[pairs.second]).all()
    assert (pairs.first > pairs.second).any()  # labels say nothing
    numbers = {}
    for first, second, number in zip(*map(torch.Tensor.tolist, pairs), strict=True):
        assert numbers.setdefault(frozenset((first, second)), number) == number
    assert len(set(numbers.values())) == len(numbers)
