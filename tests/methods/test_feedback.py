import pytest
import torch
from scipy import stats

from s6mod.methods.feedback import (
    base_part,
    draw_pairs,
    pair_part,
    pick,
    pick_distinct,
    scalar_labels,
    symmetric_beta,
)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def in_order(num_classes):
    return torch.arange(num_classes)


# --- rows of the memory ---------------------------------------------------------------------------------------

LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3, -1, -1])


def test_pair_images_are_drawn_with_replacement_from_all_rows_of_their_classes(prototypes):
    mu, seen = prototypes(5, (0, 1)), torch.zeros(10)
    for seed in range(200):
        first, second, _ = pair_part(mu, in_order(5), LABELS, 8, 0.5, 0.4, random(seed))
        assert (LABELS[first] == 0).all()
        assert (LABELS[second] == 1).all()
        seen += torch.cat([first, second]).bincount(minlength=10)
    share = seen / (200 * 8)
    expected = torch.tensor([1 / 3, 1 / 2, 0, 1 / 3, 1 / 2, 0, 1 / 3, 0, 0, 0])
    torch.testing.assert_close(share, expected, atol=0.05, rtol=0)


def test_a_class_without_stored_image_is_replaced_by_a_random_one_that_has_image_and_prototype(prototypes):
    mu = prototypes(5, (0, 1, 4))  # 4 has no image, 2 and 3 have no prototype
    position = torch.tensor([1, 2, 3, 4, 0])
    found = []
    for seed in range(100):
        pairs = draw_pairs(mu, position, 6, random(seed))
        first, second, _ = pair_part(mu, position, LABELS, 6, 0.5, 0.4, random(seed))
        assert torch.equal(LABELS[second], pairs.second)  # which is never 4, the first in the class order
        gone = pairs.first == 4
        assert torch.equal(LABELS[first][~gone], pairs.first[~gone])
        found += LABELS[first][gone].tolist()
    assert set(found) == {0, 1}
    assert 0.4 < found.count(0) / len(found) < 0.6


@pytest.mark.parametrize("present", [(), (1,)])
def test_without_a_pair_of_prototypes_images_are_real_ones_and_of_the_class_that_has_one(present, prototypes):
    first, second, mix = pair_part(prototypes(5, present), in_order(5), LABELS, 6, 1.0, 0.4, random())
    assert len(first) == len(second) == 6
    assert (LABELS[torch.cat([first, second])] == (1 if present else 0)).all()
    assert mix.isfinite().all()


def test_picks_are_uniform_over_what_there_is():
    candidates = torch.tensor([[True, False, True, True], [False, False, True, False]])
    first, second = torch.stack([pick(candidates, random(seed)) for seed in range(900)]).T
    torch.testing.assert_close(first.bincount(minlength=4) / 900, torch.tensor([1, 0, 1, 1]) / 3, atol=0.06, rtol=0)
    assert (second == 2).all()

    distinct = torch.stack([pick_distinct(LABELS >= 0, 3, random(seed)) for seed in range(900)])
    assert all(len(set(row)) == 3 for row in distinct.tolist())
    expected = torch.tensor([1.0] * 8 + [0, 0]) * 3 / 8
    torch.testing.assert_close(distinct.flatten().bincount(minlength=10) / 900, expected, atol=0.06, rtol=0)
    assert sorted(pick_distinct(LABELS >= 0, 8, random()).tolist()) == list(range(8))


# --- shares ---------------------------------------------------------------------------------------------------


def test_trap_an_image_of_the_base_part_is_mixed_with_probability_p_squared():
    rows, partners, p = torch.arange(50), torch.arange(50).flip(0), 0.6
    calls = [base_part(rows, partners, p, 0.6, random(seed)) for seed in range(1000)]
    assert all(torch.equal(call.first, rows) and torch.equal(call.second, partners) for call in calls)
    mixed = torch.stack([call.mix > 0 for call in calls])  # (calls, images)
    active = mixed.any(1)
    assert abs(active.float().mean() - p) < 0.05  # one coin a call
    assert abs(mixed[active].float().mean() - p) < 0.01  # then one an image
    assert abs(mixed.float().mean() - p**2) < 0.03
    shares = torch.cat([call.mix for call in calls])
    assert stats.kstest(shares[shares > 0].numpy(), stats.uniform(0, 0.6).cdf).pvalue > 1e-3


def test_one_coin_is_thrown_for_a_pair_of_classes_and_without_it_the_first_image_stays_pure(prototypes):
    mu, p = prototypes(5, (0, 1, 2, 3), seed=2), 0.3
    outcomes, shares = [], []
    for seed in range(300):
        pairs = draw_pairs(mu, in_order(5), 20, random(seed))
        mix = pair_part(mu, in_order(5), LABELS, 20, p, 0.4, random(seed)).mix
        for number in pairs.number.unique():
            own = mix[pairs.number == number]
            assert (own > 0).all() or (own == 0).all()
            outcomes.append(bool((own > 0).all()))
            if len(own) > 1 and outcomes[-1]:
                assert len(own.unique()) == len(own)  # but each image has a lambda of its own
        shares.append(mix[mix > 0])
    assert abs(sum(outcomes) / len(outcomes) - p) < 0.05
    assert stats.kstest(torch.cat(shares).numpy(), stats.beta(0.4, 0.4).cdf).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])
def test_symmetric_beta_has_the_distribution_of_its_name(alpha):
    x = symmetric_beta(50_000, alpha, random(1))
    assert ((x >= 0) & (x <= 1)).all()
    assert abs(x.mean() - 0.5) < 0.01
    assert abs(x.var() - 1 / (8 * alpha + 4)) < 0.002
    assert stats.kstest(x.double().numpy(), stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_trap_mixed_labels_are_real_numbers_that_meet_only_their_like():
    first, second = torch.tensor([3, 3, 3, 7, 7]), torch.tensor([5, 5, 3, 1, 7])
    mix = torch.tensor([0.25, 0.0, 0.3, 0.6, 0.0])
    scalars = scalar_labels(first, second, mix)
    torch.testing.assert_close(scalars, torch.tensor([3.5, 3.0, 3.0, 3.4, 7.0]))
    many = torch.rand(10_000, generator=random())
    own = scalar_labels(*torch.full((2, 10_000), 61), many)  # within a class
    assert (own == 61).float().mean() > 0.9
    assert (own + 100 == 161).all()  # the rounding is gone in every rotated copy
    across = scalar_labels(torch.full((200,), 3), torch.full((200,), 9), 0.01 + 0.98 * many[:200])
    assert len(across.unique()) == 200
