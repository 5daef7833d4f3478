import pytest
from scipy import stats

from s6mod.paper.estimate import Estimate, Verdict, paired, verdict, welch_half


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


def test_the_interval_of_a_difference_is_welch_s():
    ours, theirs = [31.0, 33.5, 32.0], [30.0, 30.5, 31.0, 29.0, 33.0, 28.5, 30.5, 31.5, 30.0, 31.0]
    found = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    half = welch_half(stats.tstd(ours), 3, stats.tstd(theirs), 10)
    assert half == pytest.approx((found.high - found.low) / 2)
    assert welch_half(0.0, 3, 0.0, 10) == 0


def test_a_verdict_differs_agrees_or_says_how_many_seeds_would_decide_it():
    narrow, wide = Estimate.of([31.5, 32.0, 32.5]), Estimate.of([27.0, 32.0, 37.0])
    assert verdict(narrow, (32.6, 1.0)) == Verdict("agrees")
    assert verdict(narrow, (36.0, 1.0)) == verdict(narrow, (28.0, 1.0)) == Verdict("differs")
    found = verdict(wide, (33.0, 1.0))  # not rejected, which says little: its half is 12 points
    assert (found.word, str(found)) == ("open", f"open (n = {found.seeds})")
    with_more = welch_half(wide.std, found.seeds, 1.0, 10)
    assert with_more <= 2.0 < welch_half(wide.std, found.seeds - 1, 1.0, 10)
    sooner = verdict(wide, (40.0, 1.0))  # far apart: it takes fewer to show that they differ
    assert sooner.word == "open"
    assert sooner.seeds < found.seeds


def test_a_verdict_takes_three_seeds():
    assert verdict(Estimate.of([31.9, 32.1]), (40.0, 1.0)) == Verdict("open", 3)
    assert verdict(Estimate.of([32.0]), (32.0, 1.0)) == Verdict("open", 3)  # its spread is taken as the paper's
    assert verdict(None, (32.0, 1.0)) == Verdict("not run")
    assert verdict(Estimate.of([32.0, 33.0, 34.0]), None) == Verdict("")
