import pytest

from s6mod.decimals import decimal, difference, round_number, spread


@pytest.mark.parametrize("value", [0.0, -0.0, 0.004, -0.004])
def test_what_rounds_to_zero_is_printed_alike_from_either_side(value):
    assert (decimal(value), decimal(value, 1), decimal(value, 0)) == ("0.00", "0.0", "0")
    assert (difference(value), difference(value, 0.5)) == ("+0.00", "+0.00±0.50")
    assert spread(value, 0.5) == "0.00±0.50"


def test_other_numbers_keep_their_signs():
    assert (decimal(-0.006), decimal(0.006)) == ("-0.01", "0.01")
    assert (difference(-1.5, 0.25, " "), difference(1.5)) == ("-1.50 ± 0.25", "+1.50")
    assert (spread(-1.5, None), spread(1.5, 0.25, 1, " ")) == ("-1.50", "1.5 ± 0.2")


def test_round_numbers_are_those_that_people_count_by():
    assert [round_number(least) for least in (0.3, 1, 1.1, 4, 5, 6, 11, 40, 51)] == [1, 1, 2, 5, 5, 10, 20, 50, 100]
