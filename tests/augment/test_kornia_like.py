import dataclasses
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode

import s6mod.augment
from s6mod.augment import KorniaAugment, KorniaAugmentConfig, to_float
from s6mod.errors import ConfigError, InputError

CPU = torch.device("cpu")


def draw(batch, size=(32, 32), seed=0, **config):
    generator = torch.Generator().manual_seed(seed)
    return KorniaAugment(KorniaAugmentConfig(**config)).draw(batch, size, generator, CPU)


def noise(batch, size=(16, 16)):
    return torch.rand((batch, 3, *size), generator=torch.Generator().manual_seed(9))


# --- the same parameters give the same pixels -----------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_a_view_is_that_of_kornia_parameter_for_parameter(oracle, size):
    x = noise(64, size)
    for seed in range(5):
        params = draw(64, size, seed)
        expected = oracle.flip(oracle.crop(x, params.box), params.flip)
        expected = oracle.jitter(expected, params.factors, params.order, params.jitter)
        expected = oracle.grey(expected, params.grey)
        torch.testing.assert_close(KorniaAugment().apply(x, params), expected, rtol=0, atol=1e-5)


def test_parameters_that_say_nothing_return_the_input_bit_by_bit():
    x, no = noise(4), torch.zeros(4, dtype=torch.bool)
    whole = torch.tensor([[0, 0, 16, 16]]).expand(4, 4)
    params = dataclasses.replace(draw(4), box=whole, flip=no, jitter=no, grey=no)
    assert torch.equal(KorniaAugment().apply(x, params), x)


def test_masks_decide_image_by_image():
    x, mask = noise(2), torch.tensor([True, False])
    whole = torch.tensor([[0, 0, 16, 16]]).expand(2, 4)
    params = dataclasses.replace(draw(2), box=whole, flip=~mask & mask, jitter=mask, grey=~mask)
    view = KorniaAugment().apply(x, params)
    assert not torch.allclose(view[0], x[0])
    assert (view[1] == view[1, :1]).all()
    assert not (view[0] == view[0, :1]).all()


def test_channels_last_input_gives_the_same_values_and_no_input_is_written_to():
    x = noise(16)
    before, params = x.clone(), draw(16, (16, 16))
    view = KorniaAugment().apply(x, params)
    assert torch.equal(KorniaAugment().apply(x.contiguous(memory_format=torch.channels_last), params), view)
    assert torch.equal(x, before)


def test_stored_pixels_give_the_view_of_their_floats():
    pixels, params = (255 * noise(16)).byte(), draw(16, (16, 16))
    assert torch.equal(KorniaAugment().apply(pixels, params), KorniaAugment().apply(to_float(pixels), params))


def test_reduced_precision_around_it_does_not_reach_the_pixels():
    x, params = noise(16), draw(16, (16, 16))
    with torch.autocast("cpu", torch.bfloat16):
        view = KorniaAugment().apply(x, params)
    assert torch.equal(view, KorniaAugment().apply(x, params))


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (20, 33)])
def test_a_view_has_the_shape_type_and_range_of_its_input(generator, size):
    x = torch.cat([noise(64, size), torch.ones(8, 3, *size), torch.zeros(8, 3, *size)])
    view = KorniaAugment()(x, generator)
    assert view.shape == x.shape
    assert view.dtype == torch.float32
    assert view.min() >= 0
    assert view.max() <= 1


# --- the draws ------------------------------------------------------------------------------------------------


def test_masks_come_with_their_probabilities_and_independently_of_each_other():
    params = draw(20_000, (8, 8))
    masks = torch.stack([params.flip, params.jitter, params.grey]).double()
    assert (masks.mean(1) - torch.tensor([0.5, 0.8, 0.2])).abs().max() < 0.015
    everything = torch.cat([masks, params.factors.double().T, params.box[:, 2:].double().T])
    correlation = torch.corrcoef(everything)[:7]  # sides of a box do depend on each other
    assert (correlation - torch.eye(9)[:7]).abs().max() < 0.035


def test_images_of_a_batch_are_drawn_independently():
    params = draw(20_000, (8, 8))
    for values in (params.flip, params.jitter, params.grey, params.box[:, 2], *params.factors.unbind(1)):
        neighbours = torch.stack([values[:-1], values[1:]]).double()
        assert torch.corrcoef(neighbours)[0, 1].abs() < 0.035


def test_factors_are_uniform_around_neutral():
    brightness, contrast, saturation, hue = draw(10_000, (8, 8)).factors.unbind(1)
    for factor in (brightness, contrast, saturation):
        assert stats.kstest(factor, stats.uniform(0.6, 0.8).cdf).pvalue > 1e-3
    assert stats.kstest(hue, stats.uniform(-0.1, 0.2).cdf).pvalue > 1e-3


def test_the_order_is_one_permutation_per_call_and_all_24_are_equally_likely(generator):
    orders = Counter(tuple(KorniaAugment().draw(1, (8, 8), generator, CPU).order.tolist()) for _ in range(2400))
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len(orders) == 24
    assert stats.chisquare(list(orders.values())).pvalue > 1e-3


def test_a_call_uses_one_order_for_its_whole_batch():
    # Images that agree in everything else come out alike; with an order of their own some would not.
    alike = dataclasses.replace(draw(32, (16, 16)), grey=torch.zeros(32, dtype=torch.bool))
    same = {name: getattr(alike, name)[:1].repeat_interleave(32, 0) for name in ("box", "flip", "factors")}
    params = dataclasses.replace(alike, jitter=torch.ones(32, dtype=torch.bool), **same)
    view = KorniaAugment().apply(noise(1).repeat(32, 1, 1, 1), params)
    assert torch.equal(view, view[:1].expand_as(view))


def test_configured_numbers_are_used():
    params = draw(500, flip_probability=0.0, jitter_probability=1.0, grey_probability=0.0)
    assert not params.flip.any()
    assert params.jitter.all()
    assert not params.grey.any()
    areas = draw(500, scale=(0.5, 0.5)).box[:, 2:].prod(1)
    assert (areas / 32**2 - 0.5).abs().max() < 0.03  # sides are whole pixels


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_an_image_that_is_not_cropped_is_left_whole(share):
    options = {"scale": (0.8, 1.0), "flip_probability": 0.0, "jitter_probability": 0.0, "grey_probability": 0.0}
    params = draw(2000, (8, 8), crop_probability=share, **options)
    whole = (params.box == torch.tensor([0, 0, 8, 8])).all(1)
    assert abs(1 - whole.double().mean() - share) < 0.04  # a crop is always smaller than its image
    x = noise(2000, (8, 8))
    assert torch.equal(KorniaAugment().apply(x, params)[whole], x[whole])
    assert torch.equal(params.box[~whole], draw(2000, (8, 8), **options).box[~whole])


def test_the_generator_alone_decides():
    x, augment = noise(8), KorniaAugment()
    first = augment(x, torch.Generator().manual_seed(1))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    assert torch.equal(augment(x, torch.Generator().manual_seed(1)), first)
    assert not torch.equal(augment(x, torch.Generator().manual_seed(2)), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_second_view_of_the_same_images_is_another(generator):
    x = noise(1).repeat(8, 1, 1, 1)
    views = torch.cat([KorniaAugment()(x, generator), KorniaAugment()(x, generator)])
    assert len(views.flatten(1).unique(dim=0)) == 16


def test_views_have_the_statistics_of_kornias(oracle, generator):
    """Mean, spread, colourfulness and fine detail of many random views of smooth random images."""

    def statistics(x):
        spread = x.std((2, 3)).mean(1)
        colour = (x.amax(1) - x.amin(1)).mean((1, 2))
        detail = x.diff(dim=3).abs().mean((1, 2, 3))
        lean = x[..., :8].mean((1, 2, 3)) - x[..., 8:].mean((1, 2, 3))
        return torch.stack([x.mean((1, 2, 3)), spread, colour, detail, lean]).double()

    torch.manual_seed(2)
    coarse = torch.rand((20, 100, 3, 4, 4), generator=generator)
    batches = [torch.nn.functional.interpolate(images, size=16, mode="bilinear") for images in coarse]
    theirs = torch.cat([statistics(oracle.view(x)) for x in batches], dim=1)
    ours = torch.cat([statistics(KorniaAugment()(x, generator)) for x in batches], dim=1)
    standard_error = ours.std(1) * (2 / ours.shape[1]) ** 0.5
    assert ((theirs.mean(1) - ours.mean(1)).abs() < 4 * standard_error).all()
    assert ((theirs.std(1) / ours.std(1) - 1).abs() < 0.1).all()
    for a, b in zip(theirs, ours, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3


# --- the rest of the contract ---------------------------------------------------------------------------------


def test_nothing_is_read_back_from_a_device():
    augment = KorniaAugment()
    with FakeTensorMode():  # tensors without values: reading one raises
        drawn = augment.draw(4, (16, 16), torch.Generator(), CPU)
    assert drawn.box.shape == (4, 4)
    params = draw(4, (16, 16))
    on_device = type(params)(**{f.name: getattr(params, f.name).to("meta") for f in dataclasses.fields(params)})
    assert augment.apply(noise(4).to("meta"), on_device).shape == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (torch.zeros(2, 1, 8, 8), "repeat a grey channel"),
        (torch.zeros(3, 8, 8), r"expected images of shape \(B, 3, H, W\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.float64), "expected images in uint8, or in float32 from 0 to 1"),
    ],
)
def test_other_images_are_refused(generator, x, hint):
    with pytest.raises(InputError, match=hint):
        KorniaAugment()(x, generator)
    with pytest.raises(InputError, match=hint):
        KorniaAugment().apply(x, draw(2, (8, 8)))


@pytest.mark.parametrize(
    "values",
    [{"scale": [0.5, 0.2]}, {"scale": [0.2, 1.5]}, {"scale": [0.0, 1.0]}, {"grey_probability": 1.1}, {"crop": 1}],
)
def test_impossible_configurations_are_refused(values):
    with pytest.raises(ConfigError, match="expected"):
        KorniaAugmentConfig.parse(values)


def test_defaults_are_those_of_the_published_results():
    assert KorniaAugmentConfig.parse({}).plain() == {
        "scale": [0.2, 1.0],
        "crop_probability": 1.0,
        "flip_probability": 0.5,
        "jitter_probability": 0.8,
        "grey_probability": 0.2,
    }


def test_pixels_become_floats_between_zero_and_one():
    pixels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_float(pixels), torch.arange(256) / 255)
    image = torch.zeros(2, 3, 8, 8, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    assert to_float(image).is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(InputError, match="expected uint8 images"):
        to_float(torch.rand(2, 3, 8, 8))


def test_kornia_is_not_needed():
    folder = Path(s6mod.augment.__file__).parent
    sources = [path.read_text() for path in folder.glob("*.py")]
    assert sources
    assert not any(re.search(r"^\s*(import|from) kornia", source, re.MULTILINE) for source in sources)
