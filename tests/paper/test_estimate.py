import pytest
from scipy import stats

from s6mod.paper.estimate import Estimate, paired, verdict


def test_the_interval_is_student_s():
    values = [31.0, 33.5, 32.0, 30.5, 32.7]
    ours = Estimate.of(values)
    low, high = stats.t.interval(0.95, 4, loc=ours.mean, scale=stats.sem(values))
    assert (ours.mean - ours.half, ours.mean + ours.half) == pytest.approx((low, high))
    assert ours.std == pytest.approx(stats.tstd(values))
    assert Estimate.of([3.0]) == Estimate(1, 3.0, None, None)


def test_a_gain_is_paired_over_the_seeds_that_both_have():
    gain = paired({0: 5.0, 1: 9.0, 7: 1.0}, {0: 4.0, 1: 6.0, 2: 0.0})
    assert (gain.n, gain.mean) == (2, 2.0)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_a_verdict_takes_three_seeds_and_knows_what_is_better():
    ours = Estimate(3, 32.0, 1.0, 2.0)
    assert verdict(ours, 33.9, True) == "reproduced"
    assert verdict(ours, 34.1, True) == "below"
    assert verdict(ours, 29.9, True) == "better"
    assert verdict(ours, 34.1, False) == "better"  # of forgetting, less is better
    assert verdict(Estimate(2, 32.0, 1.0, 9.0), 32.0, True) == "undecided"
    assert verdict(None, 32.0, True) == "not run"
    assert verdict(ours, None, True) == ""
