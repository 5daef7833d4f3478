import pytest
import torch

from s6mod.branch.etf import ETF
from s6mod.errors import ConfigError


@pytest.mark.parametrize(("d_inner", "num_classes"), [(128, 100), (128, 10), (7, 7), (2, 2)])
def test_class_vectors_are_units_with_equal_angles(d_inner, num_classes):
    weight = ETF(d_inner, num_classes).weight
    assert weight.shape == (d_inner, num_classes)
    expected = torch.full((num_classes, num_classes), -1 / (num_classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(weight.T @ weight, expected, rtol=0, atol=1e-5)


def test_the_head_is_drawn_from_the_seed_fixed_and_part_of_the_state():
    torch.manual_seed(3)
    first = ETF(8, 5)
    torch.manual_seed(3)
    again = ETF(8, 5)
    torch.manual_seed(4)
    other = ETF(8, 5)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    assert list(first.parameters()) == []
    assert list(first.state_dict()) == ["weight"]


def test_scores_are_cosines():
    head = ETF(8, 5)
    torch.testing.assert_close(head(head.weight.T).diagonal(), torch.ones(5))


def test_fewer_dimensions_than_classes_are_refused():
    with pytest.raises(
        ConfigError, match=r"d_inner at least the number of classes \(200\), got 128; set branch.d_inner=256"
    ):
        ETF(128, 200)


def test_a_single_class_is_refused():
    with pytest.raises(ConfigError, match="at least 2 classes, got 1"):
        ETF(128, 1)
