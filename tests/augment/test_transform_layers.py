import dataclasses
import math

import pytest
import torch
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from s6mod.augment import TransformLayers, TransformLayersConfig, TransformLayersParams
from s6mod.augment.transform_layers import draw_sides
from s6mod.errors import ConfigError, InputError

CPU = torch.device("cpu")


def draw(batch, size=(32, 32), seed=0, **config):
    generator = torch.Generator().manual_seed(seed)
    return TransformLayers(TransformLayersConfig(**config)).draw(batch, size, generator, CPU)


def noise(batch, size=(16, 16)):
    return torch.rand((batch, 3, *size), generator=torch.Generator().manual_seed(9))


def neutral(batch):
    no = torch.zeros(batch, dtype=torch.bool)
    return TransformLayersParams(no, no, torch.ones(batch, 2), torch.zeros(batch, 2))


# --- the same parameters give the same pixels -----------------------------------------------------------------


@pytest.mark.parametrize("size", [(16, 16), (12, 20)])
def test_a_view_is_flip_then_grey_then_an_affine_sampling(size):
    x, params = noise(64, size), draw(64, size)
    expected = torch.where(params.flip[:, None, None, None], x.flip(3), x)
    luminance = (expected * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    expected = torch.where(params.grey[:, None, None, None], luminance, expected)
    theta = torch.zeros(64, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = params.extent[:, 1], params.extent[:, 0]
    theta[:, 0, 2], theta[:, 1, 2] = params.shift[:, 1], params.shift[:, 0]
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    expected = F.grid_sample(expected, grid, padding_mode="reflection", align_corners=False)
    torch.testing.assert_close(TransformLayers().apply(x, params), expected, rtol=0, atol=1e-5)


def test_a_crop_of_half_the_size_interpolates_between_pixel_centres():
    ramp = torch.arange(8.0).expand(1, 3, 8, 8)  # a pixel's value is its column
    params = dataclasses.replace(neutral(1), extent=torch.tensor([[0.5, 0.5]]), shift=torch.tensor([[0.0, 0.125]]))
    # Four columns around the centre 3.5, moved by half a pixel: from 2 to 6, eight samples of half a pixel each.
    expected = 2 + 0.25 + 0.5 * torch.arange(8.0)
    torch.testing.assert_close(TransformLayers().apply(ramp, params)[0, 0, 3], expected)


def test_parameters_that_say_nothing_return_the_input():
    x = noise(4)
    torch.testing.assert_close(TransformLayers().apply(x, neutral(4)), x, rtol=0, atol=1e-5)


def test_masks_decide_image_by_image():
    x, mask = noise(2), torch.tensor([True, False])
    view = TransformLayers().apply(x, dataclasses.replace(neutral(2), flip=mask, grey=~mask))
    torch.testing.assert_close(view[0], x[0].flip(2), rtol=0, atol=1e-5)
    assert (view[1] == view[1, :1]).all()


def test_grey_of_normalised_images_weighs_the_normalised_channels():
    x = 4 * noise(1) - 2
    view = TransformLayers().apply(x, dataclasses.replace(neutral(1), grey=torch.tensor([True])))
    luminance = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    torch.testing.assert_close(view[:, 2], luminance, rtol=0, atol=1e-5)


def test_a_view_shows_nothing_brighter_or_darker_than_its_image():
    x = 4 * noise(500, (8, 8)) - 2
    view = TransformLayers(TransformLayersConfig(grey_probability=0.0))(x, torch.Generator().manual_seed(0))
    assert (view.amax((2, 3)) <= x.amax((2, 3)) + 1e-5).all()
    assert (view.amin((2, 3)) >= x.amin((2, 3)) - 1e-5).all()


def test_uint8_pixels_are_their_255ths_and_no_input_is_written_to():
    x = (noise(4) * 255).to(torch.uint8)
    before, params = x.clone(), draw(4, (16, 16))
    assert torch.equal(TransformLayers().apply(x, params), TransformLayers().apply(x / 255, params))
    assert torch.equal(x, before)


def test_half_precision_around_it_changes_nothing():
    x, params = noise(8), draw(8, (16, 16))
    with torch.autocast("cpu", torch.bfloat16):
        inside = TransformLayers().apply(x, params)
    assert torch.equal(inside, TransformLayers().apply(x, params))


# --- the distribution of the parameters -----------------------------------------------------------------------


def candidate_sides(candidates, size):
    """(height, width) of each candidate, or None where it is larger than the image: the definition, one by one."""
    found = []
    for u, v in candidates.T.double().tolist():
        area, aspect = (0.3 + 0.7 * u) * size[0] * size[1], math.exp((2 * v - 1) * math.log(4 / 3))
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        found.append((height, width) if height <= size[0] and width <= size[1] else None)
    return found


@pytest.mark.parametrize("batch", [1, 40, 500])
def test_the_first_valid_candidates_are_taken_in_order_and_the_whole_image_where_they_run_out(batch):
    candidates = torch.rand((2, 500), generator=torch.Generator().manual_seed(5))
    valid = [sides for sides in candidate_sides(candidates, (24, 32)) if sides is not None]
    assert len(valid) < 500
    expected = (valid + [(24, 32)] * 500)[:batch]
    height, width = draw_sides(candidates, batch, (24, 32), (0.3, 1.0), (3 / 4, 4 / 3))
    assert list(zip(height.tolist(), width.tolist(), strict=True)) == expected


def test_every_seventh_candidate_or_so_is_rejected_and_that_shapes_the_crops():
    candidates = torch.rand((2, 20_000), generator=torch.Generator().manual_seed(6))
    sides = candidate_sides(candidates, (32, 32))
    valid = [s for s in sides if s is not None]
    assert 0.14 < 1 - len(valid) / len(sides) < 0.17
    extent = draw(20_000).extent * 32
    areas = torch.tensor(valid).double().prod(1)
    assert stats.ks_2samp(extent.double().prod(1), areas).pvalue > 1e-3
    assert extent.prod(1).mean() < 0.63 * 32 * 32  # 0.65 if nothing were rejected
    assert extent.max() == 32


def test_without_a_valid_candidate_the_image_stays_whole(constants):
    constants(RATIO=(4.0, 4.0))
    params = draw(5, scale=(1.0, 1.0))
    assert (params.extent == 1).all()
    assert (params.shift == 0).all()


def test_offsets_are_uniform_over_all_half_pixel_places_inside(constants):
    constants(RATIO=(1.0, 1.0))
    params = draw(17_000, (16, 16), scale=(0.25, 0.25))
    assert (params.extent == 0.5).all()
    steps = params.shift * 16
    assert steps.unique().tolist() == list(range(-8, 9))
    for axis in (0, 1):
        assert stats.chisquare((steps[:, axis] + 8).long().bincount()).pvalue > 1e-3
    assert torch.corrcoef(steps.T)[0, 1].abs() < 0.03


def test_crops_never_leave_the_image():
    params = draw(5000, (24, 40))
    assert (params.shift.abs() + params.extent <= 1 + 1e-6).all()


def test_half_are_mirrored_and_a_quarter_is_grey_independently():
    params = draw(20_000, (8, 8))
    assert abs(params.flip.float().mean() - 0.5) < 0.015
    assert abs(params.grey.float().mean() - 0.25) < 0.0125
    drawn = torch.stack([params.flip, params.grey, params.extent[:, 0], params.shift[:, 0], params.shift[:, 1]])
    assert (torch.corrcoef(drawn) - torch.eye(5)).abs().max() < 0.035


def test_flip_and_grey_can_be_off():
    params = draw(500, flip_probability=0.0)
    assert not params.flip.any()
    assert params.grey.any()
    assert not draw(500, grey_probability=0.0).grey.any()


def test_the_generator_alone_decides():
    x, augment = noise(8), TransformLayers()
    first = augment(x, torch.Generator().manual_seed(1))
    state = torch.get_rng_state()
    assert torch.equal(augment(x, torch.Generator().manual_seed(1)), first)
    assert not torch.equal(augment(x, torch.Generator().manual_seed(2)), first)
    assert torch.equal(torch.get_rng_state(), state)


# --- the rest of the contract ---------------------------------------------------------------------------------


def test_nothing_is_read_back_from_a_device():
    augment = TransformLayers()
    with FakeTensorMode():  # tensors without values: reading one raises
        assert augment(torch.rand(4, 3, 16, 16), torch.Generator()).shape == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("x", "hint"), [(torch.zeros(2, 1, 8, 8), "repeat a grey channel"), (torch.zeros(2, 3, 8, 8).double(), "float32")]
)
def test_other_images_are_refused(x, hint):
    with pytest.raises(InputError, match=hint):
        TransformLayers()(x, torch.Generator())


@pytest.mark.parametrize("values", [{"scale": [0.5, 0.2]}, {"scale": [0.2, 1.5]}, {"scale": [0.0, 1.0]}, {"hue": 0.1}])
def test_impossible_configurations_are_refused(values):
    with pytest.raises(ConfigError, match="expected"):
        TransformLayersConfig.parse(values)
