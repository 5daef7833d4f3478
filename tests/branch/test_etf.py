import pytest
import torch

from s6mod.branch import S6MOD
from s6mod.branch.etf import ETF, check_width, frame_rows
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


# --- the frame that can be extended ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "classes", "most"),
    [
        (6, 6, 0),  # one basis exists in any dimension
        (128, 128, 0),
        (128, 256, 128**-0.5),
        (128, 1000, 64**-0.5),
        (16, 16 * 17, 2 * 16**-0.5),  # all that there are
        (32, 32 * 33, 16**-0.5),
    ],
)
def test_vectors_of_an_orthogonal_frame_are_units_with_small_cosines(d, classes, most):
    weight = ETF(d, classes, "orthogonal").weight
    assert weight.shape == (d, classes)
    cosines = weight.T @ weight
    torch.testing.assert_close(cosines.diagonal(), torch.ones(classes))
    assert cosines.fill_diagonal_(0).abs().max() == pytest.approx(most, abs=1e-5)


def test_a_vector_of_an_orthogonal_frame_is_the_same_whatever_is_beside_it():
    rows = frame_rows(0, 60, 16, seed=5)
    for start, stop in ((0, 7), (7, 16), (10, 40), (16, 33), (59, 60)):
        assert torch.equal(frame_rows(start, stop, 16, seed=5), rows[start:stop])
    assert not torch.equal(frame_rows(0, 7, 16, seed=6), rows[:7])


def test_a_branch_with_more_classes_has_the_old_vectors_and_parameters():
    made = []
    for classes in (5, 50):
        torch.manual_seed(3)
        made.append(S6MOD(4, classes, 2, d_inner=8, frame="orthogonal"))
    small, large = made
    assert torch.equal(large.etf.weight[:, :5], small.etf.weight)
    for ours, theirs in zip(small.parameters(), large.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("d", "classes", "roomy"), [(100, 101, 128), (128, 16513, 256), (4, 5, 8), (12, 100, 16)])
def test_widths_without_so_many_vectors_are_refused(d, classes, roomy):
    with pytest.raises(ConfigError, match=f"power of two.*{classes} classes, got {d}; set branch.d_inner={roomy}$"):
        check_width(d, classes, "orthogonal")
    check_width(roomy, classes, "orthogonal")
