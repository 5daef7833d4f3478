"""The kernels against their plain twins: on a CUDA device, and in Triton's interpreter everywhere."""

import dataclasses
import sys
from itertools import permutations, product

import pytest
import torch

from interpreter import INTERPRETED, assert_holds_interpreted, starts_the_interpreter
from s6mod import kernels
from s6mod.augment import KorniaAugment, KorniaAugmentConfig, fused, to_float
from s6mod.augment.kornia_like import KorniaParams, draw_params, plain_view, uniform_parts
from s6mod.errors import InputError

# Hardware fuses multiplications with additions, and the hue of a pale pixel magnifies that a little.
ATOL = 1e-5 if INTERPRETED else 5e-5


def noise(batch, size):
    return torch.rand((batch, 3, *size), generator=torch.Generator().manual_seed(9))


def uniform(batch):
    return torch.rand(sum(uniform_parts(batch)), generator=torch.Generator().manual_seed(batch))


def draw(batch, size, **config):
    """Parameters of the plain version."""
    config = KorniaAugmentConfig(**config)
    return draw_params(uniform(batch), batch, size, config)


def to(device, params):
    return KorniaParams(**{f.name: getattr(params, f.name).to(device) for f in dataclasses.fields(params)})


def assert_like_plain(device, x, params):
    view = fused.view(x.to(device), to(device, params))
    assert view.dtype == torch.float32
    assert view.is_contiguous()
    torch.testing.assert_close(view.cpu(), plain_view(x, params), rtol=0, atol=ATOL)


@starts_the_interpreter
def test_everything_here_holds_in_the_interpreter(tmp_path):
    assert_holds_interpreted(__file__, tmp_path)


# --- views ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 8), (6, 10)])
def test_views_of_all_orders_are_those_of_the_plain_version(device, size):
    params, x = draw(2, size, jitter_probability=1.0, grey_probability=0.0), noise(2, size)
    # The first image is noise in a crop; the second shows, row by row, what colour conversions stumble over.
    params.box[1] = torch.tensor([0, 0, *size])
    x[1, :, 0] = x[1, :1, 0]  # grey pixels
    x[1, :, 1] = (x[1, :, 1] > 0.5).float()  # corners of the colour cube
    x[1, :, 2] = 0.5 + 1e-5 * x[1, :, 2]  # nearly grey
    x[1, :, 3] = (3 * x[1, :, 3]).round() / 3  # two channels often equal
    x[1, :, 4], x[1, :, 5] = 0, 1
    for order in permutations(range(4)):
        assert_like_plain(device, x, dataclasses.replace(params, order=torch.tensor(order)))


def test_what_a_program_computes_beyond_its_image_is_not_in_the_mean(device):
    params = draw(1, (3, 3), jitter_probability=1.0, grey_probability=0.0)
    params.factors[:, 1] = (
        0.6  # below 1, so that contrast lifts the black beyond the image, and the next mean could see it
    )
    assert_like_plain(device, noise(1, (3, 3)), dataclasses.replace(params, order=torch.tensor([1, 1, 1, 1])))


def test_each_mask_is_obeyed_on_its_own(device):
    flip, jitter, grey = torch.tensor(list(product([False, True], repeat=3))).T
    params = dataclasses.replace(draw(8, (6, 10)), flip=flip, jitter=jitter, grey=grey)
    assert_like_plain(device, noise(8, (6, 10)), params)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 1), (9, 4), (32, 32), (64, 40)])
def test_images_of_any_size_are_seen_as_in_the_plain_version(device, size):
    for scale in ((0.2, 1.0), (0.01, 0.1)):
        assert_like_plain(device, noise(3, size), draw(3, size, scale=scale, jitter_probability=1.0))


def test_parameters_that_say_nothing_return_the_input_bit_by_bit(device):
    x, no = noise(2, (31, 33)).to(device), torch.zeros(2, dtype=torch.bool)
    whole = torch.tensor([[0, 0, 31, 33]]).expand(2, 4)
    params = dataclasses.replace(draw(2, (31, 33)), box=whole, flip=no, jitter=no, grey=no)
    assert torch.equal(fused.view(x, to(device, params)), x)
    pixels = (255 * x).byte()
    # On CUDA, torch divides by a number by multiplying with its inverse, which may be off by one bit.
    assert torch.equal(fused.view(pixels, to(device, params)).cpu(), to_float(pixels.cpu()))


def test_nothing_outside_the_box_is_seen(device):
    params = draw(4, (8, 8))
    top, left, height, width = (side[:, None, None] for side in params.box.unbind(1))
    row, column = torch.arange(8)[:, None], torch.arange(8)
    inside = (row >= top) & (row < top + height) & (column >= left) & (column < left + width)  # (B, H, W)
    x = noise(4, (8, 8)).masked_fill(~inside[:, None], torch.nan)
    assert fused.view(x.to(device), to(device, params)).isfinite().all()


def test_stored_pixels_give_the_view_of_their_floats(device):
    pixels, params = (255 * noise(4, (6, 10))).byte(), draw(4, (6, 10))
    view = fused.view(pixels.to(device), to(device, params))
    assert view.dtype == torch.float32
    torch.testing.assert_close(view.cpu(), plain_view(to_float(pixels), params), rtol=0, atol=ATOL)


def test_images_may_lie_in_memory_as_they_like_and_are_not_written_to(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    before, expected = x.clone(), fused.view(x, params)
    channels_last = x.contiguous(memory_format=torch.channels_last)
    every_second = x.repeat_interleave(2, dim=3)[..., ::2]
    images_last = x.permute(1, 3, 2, 0).contiguous().permute(3, 0, 2, 1)
    for same in (channels_last, every_second, images_last):
        view = fused.view(same, params)
        assert view.is_contiguous()
        torch.testing.assert_close(view, expected, rtol=0, atol=ATOL)
    assert torch.equal(x, before)
    one_for_all = x[:1].expand_as(x)
    torch.testing.assert_close(fused.view(one_for_all, params), fused.view(one_for_all.contiguous(), params))


def test_the_output_may_be_given_in_any_layout_and_floating_type(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    expected = fused.view(x, params)
    channels_last = torch.empty_like(x, memory_format=torch.channels_last)
    assert fused.view(x, params, out=channels_last) is channels_last
    torch.testing.assert_close(channels_last, expected, rtol=0, atol=ATOL)
    half = torch.empty_like(x, dtype=torch.float16)
    torch.testing.assert_close(fused.view(x, params, out=half).float(), expected, rtol=0, atol=5e-4)


def test_parameters_and_outputs_of_another_batch_are_refused(device):
    x, params = noise(2, (6, 10)).to(device), to(device, draw(2, (6, 10)))
    with pytest.raises(InputError, match="got 2 parameters"):
        fused.view(x[:1], params)
    with pytest.raises(InputError, match=r"an output of shape \(1, 3, 6, 10\)"):
        fused.view(x, params, out=x[:1].clone())


# --- parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "config", "numbers"),
    [
        ((32, 32), {}, {}),
        ((9, 40), {"scale": (0.6, 1.0)}, {"RATIO": (0.5, 1.5)}),
        ((24, 32), {"scale": (1.0, 1.0)}, {"ATTEMPTS": 1}),  # the box of last resort, mostly
        ((1, 1), {"flip_probability": 0.0, "grey_probability": 1.0}, {"REACH": (0.4, 0.0, 0.4, 0.5)}),
    ],
)
def test_the_same_uniform_numbers_give_the_parameters_of_the_plain_version(device, size, config, numbers, constants):
    config = KorniaAugmentConfig(**config)
    constants(**numbers)
    for batch in (1, 500):
        numbers, params = uniform(batch), KorniaParams.empty(batch, device)
        expected = draw_params(numbers, batch, size, config)
        fused.fill_params(params, numbers.to(device), size, config)
        # A side that falls on x.5 may round either way, depending on the last bit of an exponential.
        assert (params.box.cpu() == expected.box).all(1).float().mean() > 0.995
        torch.testing.assert_close(params.factors.cpu(), expected.factors, rtol=0, atol=1e-6)
        for name in ("flip", "jitter", "order", "grey"):
            assert torch.equal(getattr(params, name).cpu(), getattr(expected, name)), name


@pytest.mark.parametrize("numbers", [(0.0, 0.2, 0.5, 0.9), (0.1, 0.3, 0.3, 0.9)])
def test_the_order_sorts_its_four_numbers_equal_ones_by_place(device, numbers, constants):
    constants(ATTEMPTS=1)
    config, params = KorniaAugmentConfig(), KorniaParams.empty(1, device)
    for four in map(torch.tensor, sorted(set(permutations(numbers)))):
        fused.fill_params(params, torch.cat([torch.zeros(11), four]).to(device), (8, 8), config)
        assert torch.equal(params.order.cpu(), four.argsort(stable=True))


# --- which version runs ---------------------------------------------------------------------------------------


def test_where_kernels_can_run_they_do_and_see_what_the_plain_version_sees(device, launches):
    augment, x = KorniaAugment(), noise(4, (8, 8)).to(device)
    params = augment.draw(4, (8, 8), torch.Generator(device).manual_seed(0), device)
    view = augment.apply(x, params)
    assert launches == ["fill_params", "view"]
    torch.testing.assert_close(view, plain_view(x, params), rtol=0, atol=ATOL)


def test_images_too_large_for_a_program_or_asked_for_gradients_are_left_to_the_plain_version(device, launches):
    large = torch.zeros(1, 3, 100, 100, device=device)
    assert KorniaAugment().apply(large, to(device, draw(1, (100, 100)))).shape == large.shape
    x = noise(1, (8, 8)).to(device).requires_grad_()
    KorniaAugment().apply(x, to(device, draw(1, (8, 8)))).sum().backward()
    assert x.grad is not None
    assert launches == []
    with torch.no_grad():
        KorniaAugment().apply(x, to(device, draw(1, (8, 8))))
    assert launches == ["view"]


def test_without_triton_everything_is_left_to_the_plain_version(device, launches, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    monkeypatch.delitem(sys.modules, "s6mod.augment.kornia_like_triton", raising=False)
    kernels._kernels.cache_clear()
    try:
        KorniaAugment()(noise(1, (8, 8)).to(device), torch.Generator(device))
    finally:
        kernels._kernels.cache_clear()
    assert launches == []


@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs kernels on the CPU")
def test_elsewhere_than_on_a_cuda_device_the_plain_version_runs(launches, generator):
    assert not fused.available(torch.zeros(1, device="meta"))
    KorniaAugment()(noise(1, (8, 8)), generator)
    assert launches == []
