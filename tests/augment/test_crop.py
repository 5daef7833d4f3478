import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from s6mod.augment.crop import crop_resize, draw_boxes

RATIO = (3 / 4, 4 / 3)


def boxes(batch, size, generator, scale=(0.2, 1.0), ratio=RATIO, attempts=10):
    candidates = torch.rand((2, batch, attempts), generator=generator)
    return draw_boxes(candidates, torch.rand((2, batch), generator=generator), size, scale, ratio)


def random_boxes(batch, size, generator, smallest=1):
    """Any box inside the image, down to ``smallest`` pixels a side and up to the whole image."""
    H, W = size
    u = torch.rand((4, batch), generator=generator)
    height = smallest + (u[0] * (H - smallest + 1)).long()
    width = smallest + (u[1] * (W - smallest + 1)).long()
    return torch.stack([(u[2] * (H - height + 1)).long(), (u[3] * (W - width + 1)).long(), height, width], dim=1)


# --- which boxes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (28, 28), (64, 40)])
@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.6, 1.0)])
def test_the_same_uniform_numbers_give_the_same_boxes_as_kornia(oracle, generator, size, scale):
    torch.manual_seed(generator.initial_seed())
    theirs = oracle.draw_boxes(5000, size, scale)
    ours = boxes(5000, size, generator, scale)
    # A side that falls on x.5 may round either way, depending on the last bit of a logarithm.
    assert (ours == theirs).all(1).float().mean() > 0.999


@pytest.mark.parametrize(("size", "scale"), [((32, 32), (0.2, 1.0)), ((40, 64), (0.6, 1.0))])
def test_boxes_have_the_distribution_of_kornia(oracle, generator, size, scale):
    torch.manual_seed(1)
    theirs, ours = oracle.draw_boxes(10_000, size, scale).double(), boxes(10_000, size, generator, scale).double()
    for theirs_side, ours_side in zip(theirs.unbind(1), ours.unbind(1), strict=True):  # top, left, height, width
        assert stats.ks_2samp(theirs_side, ours_side).pvalue > 1e-3
    assert stats.ks_2samp(theirs[:, 2] * theirs[:, 3], ours[:, 2] * ours[:, 3]).pvalue > 1e-3
    assert stats.ks_2samp(theirs[:, 2] / theirs[:, 3], ours[:, 2] / ours[:, 3]).pvalue > 1e-3


@pytest.mark.parametrize(("lowest", "share"), [(0.2, 0.2), (0.6, 0.4)])
def test_candidates_as_large_as_the_image_are_rejected(generator, lowest, share):
    # With one attempt a rejected candidate shows as the box of last resort, which alone has the full width.
    rejected = boxes(20_000, (32, 32), generator, (lowest, 1.0), attempts=1)[:, 3] == 32
    assert abs(rejected.float().mean() - share) < 0.015


def test_rejected_candidates_are_drawn_again_not_clamped(generator):
    box = boxes(20_000, (32, 32), generator)
    assert (box[:, 2:] == 32).any(1).float().mean() < 1e-3


@pytest.mark.parametrize("size", [(32, 32), (9, 9), (64, 40), (30, 48), (32, 44), (10, 100), (100, 10)])
@pytest.mark.parametrize("ratio", [RATIO, (0.5, 2.0), (0.9, 1.5)])
def test_the_box_of_last_resort_is_the_one_of_kornia(oracle, generator, size, ratio):
    whole = (1.0, 1.0)  # a crop of the full area fits strictly only in a long image, so most attempts fail
    torch.manual_seed(generator.initial_seed())
    theirs, ours = oracle.draw_boxes(100, size, whole, ratio), boxes(100, size, generator, whole, ratio)
    torch.testing.assert_close(ours, theirs)


def test_the_box_of_last_resort_of_a_square_is_full_width_and_three_quarters_high(generator):
    box = boxes(500, (32, 32), generator, (1.0, 1.0))
    assert (box[:, 2:] == torch.tensor([24, 32])).all()
    assert set(box[:, 0].tolist()) == set(range(9))
    assert (box[:, 1] == 0).all()


@pytest.mark.parametrize("size", [(32, 32), (17, 5), (2, 2), (1, 1)])
def test_boxes_lie_inside_the_image(generator, size):
    top, left, height, width = boxes(2000, size, generator).unbind(1)
    assert min(top.min(), left.min()) >= 0
    assert min(height.min(), width.min()) >= 1
    assert (top + height).max() <= size[0]
    assert (left + width).max() <= size[1]


def test_every_place_of_a_box_is_equally_likely(generator):
    top, left, height, width = boxes(40_000, (32, 32), generator).unbind(1)
    for start, side in ((top, height), (left, width)):
        counts = torch.bincount(start[side == 25], minlength=8)
        assert len(counts) == 8
        assert stats.chisquare(counts).pvalue > 1e-3


# --- what is seen through them --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (20, 44), (9, 4)])
def test_a_crop_is_slice_then_resize(generator, size):
    x = torch.rand((64, 3, *size), generator=generator)
    box = random_boxes(64, size, generator)
    expected = [
        F.interpolate(image[None, :, t : t + h, left : left + w], size=size, mode="bilinear", align_corners=True)
        for image, (t, left, h, w) in zip(x, box.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        crop_resize(x, box, torch.zeros(64, dtype=torch.bool)), torch.cat(expected), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("size", [(32, 32), (20, 44)])
def test_a_crop_with_flip_is_that_of_kornia(oracle, generator, size):
    x = torch.rand((64, 3, *size), generator=generator)
    box = random_boxes(64, size, generator, smallest=2)
    flip = torch.rand(64, generator=generator) < 0.5
    expected = oracle.flip(oracle.crop(x, box), flip)
    torch.testing.assert_close(crop_resize(x, box, flip), expected, rtol=0, atol=1e-5)


def test_nothing_outside_the_box_is_seen(generator):
    box = random_boxes(64, (16, 16), generator)
    top, left, height, width = (side[:, None, None] for side in box.unbind(1))
    row, column = torch.arange(16)[:, None], torch.arange(16)
    inside = (row >= top) & (row < top + height) & (column >= left) & (column < left + width)  # (B, H, W)
    x = torch.rand((64, 3, 16, 16), generator=generator).masked_fill(~inside[:, None], torch.nan)
    assert crop_resize(x, box, torch.arange(64) % 2 == 0).isfinite().all()


def test_the_whole_image_is_returned_bit_by_bit(generator):
    x = torch.rand((2, 3, 31, 33), generator=generator)
    box = torch.tensor([[0, 0, 31, 33]]).expand(2, 4)
    view = crop_resize(x, box, torch.tensor([False, True]))
    assert torch.equal(view[0], x[0])
    assert torch.equal(view[1], x[1].flip(2))
