import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from s6mod.branch import Targets
from s6mod.branch import routing as module
from s6mod.branch.routing import Routing

HALVES = math.log(2)  # lambda0 for which closeness is 2 ** -distance


@pytest.fixture(autouse=True, params=[256, 0], ids=["few", "many"])
def _few(request, monkeypatch):
    """Everything here holds for few classes, all compared with all, and for many."""
    monkeypatch.setattr(module, "FEW", request.param)


def features(*values):
    return torch.tensor(values)[:, None]


def labels(*values):
    return Targets(torch.tensor(values))


def update(made, features, targets):
    """One training step's update of ``made``."""
    made.update(features, targets.unmixed(targets.soft(len(made.seen))))


def routing(num_classes=5, num_patterns=9, **options):
    return Routing(num_classes, 1, num_patterns, **{"lambda0": HALVES, **options})


def three_classes(**options):
    """Prototypes 0, 1 and 3 of classes 0, 1 and 3: distances 1, 3 and 2. Classes 2 and 4 are not seen."""
    made = routing(**options)
    update(made, features(0.0, 1.0, 3.0), labels(0, 1, 3))
    return made


def test_first_sight_copies_and_later_batches_move_by_a_fifth():
    made = routing()
    update(made, features(1.0, 3.0, 10.0), labels(0, 0, 1))
    assert made.prototypes[:, 0].tolist() == [2, 10, 0, 0, 0]
    assert made.seen.tolist() == [True, True, False, False, False]
    update(made, features(7.0, 5.0), labels(0, 4))
    torch.testing.assert_close(made.prototypes[:, 0], torch.tensor([0.8 * 2 + 0.2 * 7, 10, 0, 0, 5]))
    assert made.seen.tolist() == [True, True, False, False, True]


def test_the_momentum_is_a_choice():
    made = routing(momentum=0.5)
    update(made, features(2.0), labels(0))
    update(made, features(4.0), labels(0))
    assert made.prototypes[0, 0] == 3


def test_mixed_samples_do_not_move_prototypes():
    made = routing()
    mixed = Targets(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2]), torch.tensor([0.0, 0.3, 1.0]))
    update(made, features(4.0, 100.0, 100.0), mixed)
    assert made.prototypes[:, 0].tolist() == [4, 0, 0, 0, 0]
    assert made.seen.tolist() == [True, False, False, False, False]


def test_features_of_any_shape_are_flattened_and_carry_no_gradient():
    made = Routing(3, 12, 4)
    x = torch.randn(2, 3, 2, 2, requires_grad=True)
    update(made, x, labels(2, 2))
    torch.testing.assert_close(made.prototypes[2], x.detach().mean(0).flatten())
    assert not made.prototypes.requires_grad


def test_uncertainty_is_the_mean_closeness_to_the_other_seen_classes():
    sigma = three_classes().uncertainty()
    torch.testing.assert_close(sigma[[0, 1, 3]], torch.tensor([5 / 16, 3 / 8, 3 / 16]))
    assert sigma[[2, 4]].tolist() == [1, 1]  # not seen: uncertain


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3, 4, 2]),  # 9 sigma = 2.8125, 3.375, 1.6875
        ({"rounding": "round"}, [3, 3, 2]),
        ({"aggregate": "max"}, [5, 5, 3]),  # 9 sigma = 4.5, 4.5, 2.25
        ({"lambda0": 50.0}, [1, 1, 1]),  # at least one
        ({"lambda0": 0.0}, [9, 9, 9]),  # at most all
        ({"lambda0": 50.0, "fixed_patterns": 6}, [6, 6, 6]),
    ],
)
def test_the_number_of_patterns_follows_from_the_uncertainty(options, expected):
    made = three_classes(**options)
    assert made.count(made.uncertainty())[[0, 1, 3]].tolist() == expected
    assert made.count_for_targets(labels(0, 1, 3).soft(5)).tolist() == expected


def test_one_class_alone_is_fully_uncertain():
    made = routing()
    assert made.uncertainty().tolist() == [1] * 5
    update(made, features(1.0, 2.0), labels(3, 3))
    assert made.uncertainty().tolist() == [1] * 5
    assert made.count_for_targets(labels(3).soft(5)).tolist() == [9]


def test_a_sample_of_two_classes_has_their_uncertainties_weighted():
    mixed = Targets(torch.tensor([0, 1]), torch.tensor([3, 2]), torch.tensor([0.25, 0.5]))
    # 9 (3/4 5/16 + 1/4 3/16) = 2.53; the class never seen counts 1: 9 (1/2 3/8 + 1/2) = 6.19
    assert three_classes().count_for_targets(mixed.soft(5)).tolist() == [3, 7]


def test_at_inference_the_sample_stands_for_its_class():
    sigma = three_classes().sample_uncertainty(features(2.0, 0.0))
    torch.testing.assert_close(sigma, torch.tensor([(1 / 4 + 1 / 2 + 1 / 2) / 3, (1 + 1 / 2 + 1 / 8) / 3]))
    nearest = three_classes(aggregate="max").sample_uncertainty(features(2.0, 0.0))
    torch.testing.assert_close(nearest, torch.tensor([1 / 2, 1.0]))


def test_before_any_class_a_sample_is_fully_uncertain():
    assert routing().sample_uncertainty(features(2.0, -1.0)).tolist() == [1, 1]


def test_relative_distances_are_divided_by_their_running_mean():
    made = three_classes(distance="relative")
    torch.testing.assert_close(made.running_distance, torch.tensor(2.0))  # of 1, 3 and 2
    expected = (2**-0.5 + 2**-1.5) / 2
    torch.testing.assert_close(made.uncertainty()[0], torch.tensor(expected))
    torch.testing.assert_close(made.sample_uncertainty(features(1.0)), torch.tensor([(2**-0.5 + 1 + 2**-1) / 3]))
    # Prototype 3 moves to 0.8 * 3 + 0.2 * 18 = 6: distances 1, 6 and 5, mean 4; the running mean moves by a fifth.
    update(made, features(18.0), labels(3))
    torch.testing.assert_close(made.running_distance, torch.tensor(0.8 * 2 + 0.2 * 4))
    torch.testing.assert_close(made.mean_distance(), torch.tensor(4.0))


def test_relative_distances_do_not_depend_on_the_scale_of_the_features():
    near, far = routing(distance="relative"), routing(distance="relative")
    update(near, features(0.0, 1.0, 3.0), labels(0, 1, 3))
    update(far, features(0.0, 1000.0, 3000.0), labels(0, 1, 3))
    assert (near.uncertainty() < 1).any()
    torch.testing.assert_close(near.uncertainty(), far.uncertainty())


def test_relative_distances_are_defined_with_one_class():
    made = routing(distance="relative")
    update(made, features(2.0), labels(1))
    assert made.running_distance == 0
    assert made.uncertainty().tolist() == [1] * 5
    torch.testing.assert_close(made.sample_uncertainty(features(3.0)), torch.tensor([0.5]))


def test_distances_of_long_nearly_equal_features_keep_their_digits():
    made = Routing(2, 8192, 8, lambda0=1.0)
    base = 5 * torch.randn(8192, generator=torch.Generator().manual_seed(0))
    step = torch.zeros(8192).index_fill(0, torch.tensor(7), 0.5)
    update(made, torch.stack([base, base + step]), labels(0, 1))
    torch.testing.assert_close(made.mean_distance(), torch.tensor(0.5), rtol=1e-3, atol=0)


def test_the_state_is_what_is_needed_to_go_on():
    made, resumed = three_classes(distance="relative"), routing(distance="relative")
    resumed.load_state_dict(made.state_dict())
    assert torch.equal(resumed.uncertainty(), made.uncertainty())
    for one in (made, resumed):
        update(one, features(9.0, 4.0), labels(1, 2))
    for ours, theirs in zip(made.buffers(), resumed.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("distance", ["absolute", "relative"])
@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_many_classes_are_routed_like_few(monkeypatch, aggregate, distance):
    random = torch.Generator().manual_seed(0)
    options = {"aggregate": aggregate, "distance": distance, "lambda0": 0.3 if distance == "absolute" else 1.0}
    few, many = (Routing(30, 6, 40, **options) for _ in range(2))
    found = set()
    for step in range(20):
        labels, partners = torch.randint(30, (2, 4), generator=random)
        mix = torch.rand(4, generator=random) * (torch.arange(4) > 1) if step % 2 else None
        targets = Targets(labels, partners if step % 2 else None, mix)
        x, q = 3 * torch.randn(4, 6, generator=random) + 5, targets.soft(30)
        counts = []
        for limit, made in ((256, few), (0, many)):
            monkeypatch.setattr(module, "FEW", limit)
            made.update(x, targets.unmixed(q))
            assert torch.equal(made.count_for_targets(q, 8), made.count_for_targets(q))
            counts.append(made.count_for_targets(q, 4 if mix is None else 8))
        assert torch.equal(*counts)
        found.update(counts[0].tolist())
        assert torch.equal(few.seen, many.seen)
        torch.testing.assert_close(few.prototypes, many.prototypes)
        torch.testing.assert_close(few.uncertainty(), many.uncertainty())
    torch.testing.assert_close(few.sample_uncertainty(x), many.sample_uncertainty(x))
    assert len(found) > 5  # else little was compared


@pytest.mark.parametrize(("limit", "factor"), [(0, 2), (10**6, 4)])
def test_the_arithmetic_of_many_classes_does_not_grow_with_their_square(monkeypatch, limit, factor):
    monkeypatch.setattr(module, "FEW", limit)

    def operations(classes):
        made, q = Routing(classes, 8, 4), torch.eye(classes)[:5]
        with FlopCounterMode(display=False) as counter:
            made.update(torch.ones(5, 8), q)
            made.count_for_targets(q, 5)
        return counter.get_total_flops()

    assert operations(800) / operations(400) == pytest.approx(factor, rel=0.2)
