"""The kernels of the transform layers against their plain twins: on a CUDA device, and in Triton's interpreter
everywhere.
"""

import dataclasses
import sys
from itertools import product

import pytest
import torch

from interpreter import INTERPRETED, assert_holds_interpreted, starts_the_interpreter
from s6mod import kernels
from s6mod.augment import TransformLayers, TransformLayersConfig, TransformLayersParams, fused, to_float
from s6mod.augment.transform_layers import draw_params, plain_view, uniform_parts
from s6mod.errors import InputError

ATOL = 1e-5  # positions across an image are rounded otherwise, except where its sides are powers of two


def noise(batch, size):
    return torch.rand((batch, 3, *size), generator=torch.Generator().manual_seed(9))


def uniform(batch):
    return torch.rand(sum(uniform_parts(batch)), generator=torch.Generator().manual_seed(batch))


def draw(batch, size, **config):
    """Parameters of the plain version."""
    config = TransformLayersConfig(**config)
    return draw_params(uniform(batch), batch, size, config)


def to(device, params):
    return TransformLayersParams(**{f.name: getattr(params, f.name).to(device) for f in dataclasses.fields(params)})


def assert_like_plain(device, x, params, atol=ATOL):
    view = fused.transform_view(x.to(device), to(device, params))
    assert view.dtype == torch.float32
    assert view.is_contiguous()
    torch.testing.assert_close(view.cpu(), plain_view(x, params), rtol=0, atol=atol)


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


# --- views ----------------------------------------------------------------------------------------------------


def test_each_mask_is_obeyed_on_its_own(device):
    flip, grey = torch.tensor(list(product([False, True], repeat=2))).T
    params = dataclasses.replace(draw(4, (6, 10)), flip=flip, grey=grey)
    assert_like_plain(device, noise(4, (6, 10)), params)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 1), (9, 4), (31, 33), (40, 24)])
def test_images_of_any_size_are_seen_as_in_the_plain_version(device, size):
    for scale in ((0.3, 1.0), (0.01, 0.1)):
        assert_like_plain(device, noise(4, size), draw(4, size, scale=scale))


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (64, 256)])
def test_where_sides_are_powers_of_two_nothing_but_the_last_bit_differs(device, size):
    assert_like_plain(device, noise(2, size), draw(2, size), atol=5e-7)


def test_normalised_images_are_not_clamped(device):
    x, params = 8 * noise(8, (16, 16)) - 4, draw(8, (16, 16))
    assert params.grey.any()
    assert not params.grey.all()
    assert plain_view(x, params).abs().max() > 3
    assert_like_plain(device, x, params, atol=8 * ATOL)


def test_what_lies_beyond_the_edges_is_mirrored_as_often_as_it_takes(device):
    extent = torch.tensor([[1.0, 1.0], [2.0, 0.5], [7.0, 5.0]])
    shift = torch.tensor([[1.0, -1.0], [-0.5, 1.75], [3.3, -8.1]])
    for flip in (torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)):
        params = TransformLayersParams(flip, torch.zeros_like(flip), extent, shift)
        assert_like_plain(device, noise(3, (9, 12)), params, atol=1e-4)  # far away, positions are coarser


def test_parameters_that_say_nothing_return_the_input_bit_by_bit(device):
    x, no = noise(2, (31, 33)).to(device), torch.zeros(2, dtype=torch.bool)
    params = TransformLayersParams(no, no, torch.ones(2, 2), torch.zeros(2, 2))
    assert torch.equal(fused.transform_view(x, to(device, params)), x)
    pixels = (255 * x).byte()
    # On CUDA, torch divides by a number by multiplying with its inverse, which may be off by one bit.
    assert torch.equal(fused.transform_view(pixels, to(device, params)).cpu(), to_float(pixels.cpu()))
    mirrored = dataclasses.replace(params, flip=torch.ones(2, dtype=torch.bool))
    assert torch.equal(fused.transform_view(x, to(device, mirrored)), x.flip(3))


def test_stored_pixels_give_the_view_of_their_floats(device):
    assert_like_plain(device, (255 * noise(4, (6, 10))).byte(), draw(4, (6, 10)))


def test_images_may_lie_in_memory_as_they_like_and_are_not_written_to(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    before, expected = x.clone(), fused.transform_view(x, params)
    channels_last = x.contiguous(memory_format=torch.channels_last)
    every_second = x.repeat_interleave(2, dim=3)[..., ::2]
    images_last = x.permute(1, 3, 2, 0).contiguous().permute(3, 0, 2, 1)
    for same in (channels_last, every_second, images_last):
        view = fused.transform_view(same, params)
        assert view.is_contiguous()
        torch.testing.assert_close(view, expected, rtol=0, atol=ATOL)
    assert torch.equal(x, before)


def test_the_output_may_be_given_in_any_layout_and_floating_type(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    expected = fused.transform_view(x, params)
    channels_last = torch.empty_like(x, memory_format=torch.channels_last)
    assert fused.transform_view(x, params, out=channels_last) is channels_last
    torch.testing.assert_close(channels_last, expected, rtol=0, atol=ATOL)
    half = torch.empty_like(x, dtype=torch.float16)
    torch.testing.assert_close(fused.transform_view(x, params, out=half).float(), expected, rtol=0, atol=5e-4)


def test_parameters_and_outputs_of_another_batch_are_refused(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    with pytest.raises(InputError, match="got 2 parameters"):
        fused.transform_view(x[:1], params)
    with pytest.raises(InputError, match=r"an output of shape \(1, 3, 6, 10\)"):
        fused.transform_view(x, params, out=x[:1].clone())


# --- parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 40, fused.POOL_BLOCK, 2 * fused.POOL_BLOCK + 1])
@pytest.mark.parametrize(
    ("size", "config", "numbers"),
    [
        ((32, 32), {}, {}),
        ((24, 40), {"scale": (0.6, 1.0)}, {"RATIO": (0.5, 1.5)}),
        ((24, 32), {"scale": (0.9, 1.0)}, {"ATTEMPTS": 1}),  # candidates run out
        ((32, 32), {"scale": (1.0, 1.0)}, {"RATIO": (4.0, 4.0), "ATTEMPTS": 2}),  # no candidate is valid
        ((17, 17), {"scale": (0.25, 0.25)}, {"RATIO": (1.0, 1.0)}),  # sides of 8.5 pixels
        ((1, 1), {"flip_probability": 0.0, "grey_probability": 1.0}, {}),
    ],
)
def test_the_same_uniform_numbers_give_the_parameters_of_the_plain_version(
    device, batch, size, config, numbers, constants
):
    config = TransformLayersConfig(**config)
    constants(**numbers)
    numbers, params = uniform(batch), TransformLayersParams.empty(batch, device)
    expected = draw_params(numbers, batch, size, config)
    fused.fill_transform_params(params, numbers.to(device), size, config)
    for name in ("flip", "grey"):
        assert torch.equal(getattr(params, name).cpu(), getattr(expected, name)), name
    # A side that falls on x.5 may round either way, depending on the last bit of an exponential.
    for name in ("extent", "shift"):
        assert (getattr(params, name).cpu() == getattr(expected, name)).all(1).float().mean() > 0.995, name


# --- which version runs ---------------------------------------------------------------------------------------


def test_where_kernels_can_run_they_do_and_see_what_the_plain_version_sees(device, launches):
    augment, x = TransformLayers(), noise(4, (8, 8)).to(device)
    params = augment.draw(4, (8, 8), torch.Generator(device).manual_seed(0), device)
    view = augment.apply(x, params)
    assert launches == ["fill_transform_params", "transform_view"]
    torch.testing.assert_close(view, plain_view(x, params), rtol=0, atol=ATOL)


def test_images_asked_for_gradients_are_left_to_the_plain_version(device, launches):
    x, params = noise(1, (8, 8)).to(device).requires_grad_(), to(device, draw(1, (8, 8)))
    TransformLayers().apply(x, params).sum().backward()
    assert x.grad is not None
    assert launches == []
    with torch.no_grad():
        TransformLayers().apply(x, params)
    assert launches == ["transform_view"]


def test_without_triton_everything_is_left_to_the_plain_version(device, launches, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    monkeypatch.delitem(sys.modules, "s6mod.augment.kornia_like_triton", raising=False)
    kernels._kernels.cache_clear()
    try:
        TransformLayers()(noise(1, (8, 8)).to(device), torch.Generator(device))
    finally:
        kernels._kernels.cache_clear()
    assert launches == []


@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs kernels on the CPU")
def test_elsewhere_than_on_a_cuda_device_the_plain_version_runs(launches, generator):
    TransformLayers()(noise(1, (8, 8)), generator)
    assert launches == []
