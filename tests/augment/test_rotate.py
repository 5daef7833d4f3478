import pytest
import torch

from s6mod.augment import rotate16, rotate16_labels
from s6mod.errors import InputError

# One image of 4 x 4 pixels named by their place; its four inner variants; their turns.
#
#    0  1 |  2  3
#    4  5 |  6  7
#    8  9 | 10 11
#   12 13 | 14 15
IMAGE = torch.arange(16).view(1, 1, 4, 4)
INNER = torch.tensor(
    [
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
        [[13, 12, 2, 3], [9, 8, 6, 7], [5, 4, 10, 11], [1, 0, 14, 15]],
        [[13, 12, 15, 14], [9, 8, 11, 10], [5, 4, 7, 6], [1, 0, 3, 2]],
        [[0, 1, 15, 14], [4, 5, 11, 10], [8, 9, 7, 6], [12, 13, 3, 2]],
    ]
)


def test_the_first_four_blocks_are_the_inner_variants():
    assert torch.equal(rotate16(IMAGE)[:4, 0], INNER)


def test_the_next_blocks_are_turned_by_180_then_90_then_270_degrees_counter_clockwise():
    blocks = rotate16(IMAGE)[:, 0].view(4, 4, 4, 4)  # (turn, inner, H, W)
    half, quarter, three_quarters = blocks[1:]
    for r in range(4):
        for c in range(4):
            assert torch.equal(half[:, r, c], INNER[:, 3 - r, 3 - c])
            assert torch.equal(quarter[:, r, c], INNER[:, c, 3 - r])
            assert torch.equal(three_quarters[:, r, c], INNER[:, 3 - c, r])


def test_a_quarter_turn_brings_the_right_edge_to_the_top():
    assert rotate16(IMAGE)[8, 0, 0].tolist() == [3, 7, 11, 15]


def test_images_of_a_block_stay_in_their_order_and_the_first_block_is_untouched(generator):
    x = torch.rand((5, 3, 8, 8), generator=generator)
    rows = rotate16(x)
    assert rows.shape == (80, 3, 8, 8)
    assert torch.equal(rows[:5], x)
    for i in range(5):
        assert torch.equal(rows[i::5], rotate16(x[i : i + 1]))


def test_the_sixteen_variants_differ():
    assert len(rotate16(IMAGE).flatten(1).unique(dim=0)) == 16


def test_pixels_may_be_of_any_type_and_layout(generator):
    x = torch.randint(0, 256, (2, 3, 8, 8), generator=generator, dtype=torch.uint8)
    rows = rotate16(x.contiguous(memory_format=torch.channels_last))
    assert rows.dtype == torch.uint8
    assert torch.equal(rows, rotate16(x))


def test_labels_are_moved_by_the_offset_block_by_block():
    labels = rotate16_labels(torch.tensor([3, 7]), offset=1000)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [y + 1000 * block for block in range(16) for y in (3, 7)]


@pytest.mark.parametrize("shape", [(1, 3, 8, 6), (1, 3, 7, 7), (3, 8, 8)])
def test_images_that_cannot_be_turned_are_refused(shape):
    with pytest.raises(InputError, match="expected square images of even side"):
        rotate16(torch.zeros(shape))
