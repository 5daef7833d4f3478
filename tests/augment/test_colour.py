from itertools import permutations

import pytest
import torch

from s6mod.augment.colour import grey, jitter, jitter_known_order, jitter_selected, turn_hue

NEUTRAL = torch.tensor([1.0, 1.0, 1.0, 0.0])


@pytest.fixture
def images(generator):
    """Noise, and what colour conversions stumble over."""
    x = torch.rand((10, 3, 8, 8), generator=generator)
    x[1] = x[1, :1]  # grey pixels
    x[2] = 0
    x[3] = 1
    x[4] = (x[4] > 0.5).float()  # corners of the colour cube
    x[5] *= 1e-4  # nearly black
    x[6] = 0.5 + 1e-5 * x[6]  # nearly grey
    x[7] = (3 * x[7]).round() / 3  # two channels often equal
    return x


@pytest.fixture
def factors(generator):
    u = torch.rand((10, 4), generator=generator) * 2 - 1
    return NEUTRAL + u * torch.tensor([0.4, 0.4, 0.4, 0.1])


def column(number, factors):
    """Neutral factors but for one operation."""
    only = NEUTRAL.repeat(len(factors), 1)
    only[:, number] = factors[:, number]
    return only


def test_grey_is_that_of_kornia(oracle, images):
    everywhere = torch.ones(len(images), dtype=torch.bool)
    torch.testing.assert_close(grey(images).expand(-1, 3, -1, -1), oracle.grey(images, everywhere), rtol=0, atol=1e-6)


@pytest.mark.parametrize("operation", range(4))
def test_each_operation_is_that_of_kornia(oracle, images, factors, operation):
    only, order = column(operation, factors), torch.arange(4)
    torch.testing.assert_close(jitter(images, only, order), oracle.jitter(images, only, order), rtol=0, atol=1e-5)


@pytest.mark.parametrize("operation", range(3))
def test_strong_factors_saturate_as_in_kornia(oracle, images, operation):
    only, order = NEUTRAL.repeat(10, 1), torch.arange(4)
    only[:, operation] = torch.linspace(0, 5, 10)
    torch.testing.assert_close(jitter(images, only, order), oracle.jitter(images, only, order), rtol=0, atol=1e-5)


def test_all_orders_are_those_of_kornia(oracle, images, factors):
    # Hue of a nearly grey pixel is noise over noise: rounding of the operations before it may change such a pixel's
    # hue, but its colours lie so near to each other that the values hardly move.
    for order in map(torch.tensor, permutations(range(4))):
        expected = oracle.jitter(images, factors, order)
        torch.testing.assert_close(jitter(images, factors, order), expected, rtol=0, atol=1e-5)


def test_selecting_on_the_device_gives_what_the_host_would_have_chosen(images, factors):
    results = []
    for order in permutations(range(4)):
        known = jitter_known_order(images, factors, order)
        torch.testing.assert_close(jitter_selected(images, factors, torch.tensor(order)), known, rtol=0, atol=1e-6)
        results.append(known[0])
    assert len(torch.stack(results).flatten(1).unique(dim=0)) == 24  # the order does matter


def test_neutral_factors_change_nothing(images):
    view = jitter(images, NEUTRAL.expand(10, 4), torch.arange(4))
    torch.testing.assert_close(view, images, rtol=0, atol=1e-6)


def test_inputs_are_not_written_to(images, factors):
    before = images.clone()
    grey(images)
    jitter_known_order(images, factors, range(4))
    jitter_selected(images, factors, torch.arange(4))
    assert torch.equal(images, before)


def test_contrast_uses_the_mean_of_each_image_not_of_the_batch(images, factors):
    order, only = torch.arange(4), column(1, factors)
    alone = torch.cat([jitter(images[i : i + 1], only[i : i + 1], order) for i in range(10)])
    torch.testing.assert_close(jitter(images, only, order), alone)


def test_hue_is_shifted_in_turns():
    red, green, blue = torch.eye(3)[:, None, :, None, None].unbind(0)  # (1, 3, 1, 1) each
    third = torch.full((1, 1, 1, 1), 1 / 3)
    torch.testing.assert_close(turn_hue(red, third), green, rtol=0, atol=1e-6)
    torch.testing.assert_close(turn_hue(green, third), blue, rtol=0, atol=1e-6)
    torch.testing.assert_close(turn_hue(blue, third), red, rtol=0, atol=1e-6)
    torch.testing.assert_close(turn_hue(red, third / 2), red + green, rtol=0, atol=1e-6)


@pytest.mark.parametrize("turns", [-0.5, -0.1, 0.03, 0.1, 0.5])
def test_hue_keeps_largest_and_smallest_channel_and_can_be_turned_back(images, turns):
    shift = torch.full((10, 1, 1, 1), turns)
    turned = turn_hue(images, shift)
    torch.testing.assert_close(turned.amax(1), images.amax(1), rtol=0, atol=1e-6)
    torch.testing.assert_close(turned.amin(1), images.amin(1), rtol=0, atol=1e-6)
    torch.testing.assert_close(turn_hue(turned, -shift), images, rtol=0, atol=5e-6)


def test_grey_pixels_have_no_hue_to_turn(images):
    assert torch.equal(turn_hue(images[1:4], torch.full((3, 1, 1, 1), 0.1)), images[1:4])


def test_results_stay_between_zero_and_one(images):
    strong = torch.tensor([1.4, 1.4, 1.4, 0.1]).repeat(10, 1)
    for order in map(torch.tensor, permutations(range(4))):
        for factors in (strong, 2 * NEUTRAL - strong):
            view = jitter(images, factors, order)
            assert view.min() >= 0
            assert view.max() <= 1
