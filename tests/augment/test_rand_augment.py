from math import cos, radians, sin

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.utils._python_dispatch import TorchDispatchMode

from s6mod.augment import RandAugment, RandAugmentConfig
from s6mod.augment.rand_augment import OPERATIONS
from s6mod.errors import ConfigError, InputError

# magnitude and side of the images -> shear, pixels, degrees, 1 +- factor, bits, threshold
PUBLISHED = {(15, 32): (0.15, 7, 15, 0.45, 6, 127.5), (11, 64): (0.11, 10, 11, 0.33, 7, 161.5)}
SIGNED = {*OPERATIONS[1:6], *OPERATIONS[6:10]}
SIGNS = (1, -1)


def images(side=32, count=6):
    """Noise, noise of few levels, dull noise in one channel, a ramp, one level, and one pixel that stands out."""
    random = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, side, side), generator=random, dtype=torch.uint8)
    x[1] = x[1] // 64 * 64
    x[2, 0] = x[2, 0] // 4 + 90
    x[3] = torch.linspace(0, 255, side * side).view(side, side).to(torch.uint8)
    x[4] = 77
    x[5] = 10
    x[5, :, 3, 4] = 200
    return x


def choice(name, sign=1):
    return torch.tensor([OPERATIONS.index(name) + len(OPERATIONS) * (sign < 0)])


def operate(x, name, sign=1, magnitude=15):
    augment = RandAugment(RandAugmentConfig(magnitude=magnitude), tuple(x.shape[2:]))
    return augment.apply_choices(x, choice(name, sign))


def by_pillow(x, function):
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in x]
    return torch.stack([torch.from_numpy(np.array(function(picture))).permute(2, 0, 1) for picture in pictures])


def all_choices():
    return [(name, sign) for name in OPERATIONS for sign in SIGNS]


# --- each operation, at the published magnitudes ---------------------------------------------------------------


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", OPERATIONS[1:6])
@pytest.mark.parametrize(("setting", "numbers"), PUBLISHED.items())
def test_moves_take_the_nearest_pixel_or_black(setting, numbers, name, sign):
    magnitude, side = setting
    shear, pixels, degrees, *_ = (sign * number for number in numbers)
    turn, middle = radians(degrees), side / 2
    c, s = cos(turn), sin(turn)
    affine = {
        "shear_x": (1, shear, 0, 0, 1, 0),  # the top left corner stays
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, pixels, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, pixels),
        "rotate": (c, s, middle - c * middle - s * middle, -s, c, middle + s * middle - c * middle),
    }[name]
    x = images(side) | 1  # nothing is black beforehand
    moved = operate(x, name, sign, magnitude)
    assert torch.equal(
        moved, by_pillow(x, lambda p: p.transform(p.size, Image.Transform.AFFINE, affine, Image.Resampling.NEAREST))
    )
    assert (moved == 0).any()
    assert not torch.equal(moved, operate(x, name, -sign, magnitude))


@pytest.mark.parametrize(("setting", "numbers"), PUBLISHED.items())
def test_translation_is_by_whole_pixels_in_both_directions(setting, numbers):
    (magnitude, side), pixels = setting, numbers[1]
    x = images(side)
    right, left = operate(x, "translate_x", -1, magnitude), operate(x, "translate_x", 1, magnitude)
    assert torch.equal(right[..., pixels:], x[..., :-pixels])
    assert torch.equal(left[..., :-pixels], x[..., pixels:])
    assert not right[..., :pixels].any()
    assert not left[..., -pixels:].any()


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(("setting", "numbers"), PUBLISHED.items())
def test_rotation_is_about_the_centre(setting, numbers, sign):
    magnitude, side = setting
    x = images(side)
    assert torch.equal(operate(x, "rotate", sign, magnitude), by_pillow(x, lambda p: p.rotate(-sign * numbers[2])))


@pytest.mark.parametrize(("setting", "numbers"), PUBLISHED.items())
def test_operations_that_look_at_a_level_alone_are_pillows(setting, numbers):
    (magnitude, side), (*_, factor, bits, threshold) = setting, numbers
    x = images(side)
    assert torch.equal(operate(x, "posterize", 1, magnitude), by_pillow(x, lambda p: ImageOps.posterize(p, bits)))
    assert torch.equal(operate(x, "solarize", 1, magnitude), by_pillow(x, lambda p: ImageOps.solarize(p, threshold)))
    for sign in SIGNS:
        expected = by_pillow(x, lambda p, f=1 + sign * factor: ImageEnhance.Brightness(p).enhance(f))
        assert torch.equal(operate(x, "brightness", sign, magnitude), expected)


@pytest.mark.parametrize("side", [8, 32, 64])  # too few pixels to equalize, few, and more
def test_equalize_is_pillows(side):
    x = images(side)
    equalized = operate(x, "equalize")
    assert torch.equal(equalized, by_pillow(x, ImageOps.equalize))
    assert torch.equal(equalized, x) == (side == 8)


def test_autocontrast_stretches_each_channel_to_all_levels():
    x = images()
    low, high = x.int().amin((2, 3), keepdim=True), x.int().amax((2, 3), keepdim=True)
    stretched = operate(x, "autocontrast")
    flat = (high == low).expand(x.shape)
    assert torch.equal(stretched[flat], x[flat])  # nothing to stretch in one level
    assert torch.equal(stretched[~flat], ((x - low) * 255 // (high - low).clamp(min=1))[~flat].to(torch.uint8))
    more = stretched.int() - by_pillow(x, ImageOps.autocontrast).int()
    assert set(more.unique().tolist()) <= {0, 1}  # Pillow's floats fall short of a whole level now and then


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", ["colour", "contrast", "sharpness"])
@pytest.mark.parametrize(("setting", "numbers"), PUBLISHED.items())
def test_blends_are_truncated_blends_and_a_level_or_less_from_pillows(setting, numbers, name, sign):
    magnitude, side = setting
    factor = 1 + sign * numbers[3]
    x = images(side)
    v = x.double()
    grey = (299 * v[:, 0] + 587 * v[:, 1] + 114 * v[:, 2]).div(1000).floor()[:, None]
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=torch.double).expand(3, 1, 3, 3) / 13
    smooth = v.clone()
    smooth[:, :, 1:-1, 1:-1] = torch.nn.functional.conv2d(v, kernel, groups=3).round()
    base = {"colour": grey, "contrast": grey.mean((1, 2, 3), keepdim=True), "sharpness": smooth}[name]
    exact = (factor * v + (1 - factor) * base).clamp(0, 255)

    blended = operate(x, name, sign, magnitude)
    cut = exact - blended
    assert cut.min() > -1e-3
    assert cut.max() < 1 + 1e-3  # truncated, not rounded
    assert cut.max() > 0.9
    enhance = {"colour": "Color", "contrast": "Contrast", "sharpness": "Sharpness"}[name]
    pillows = by_pillow(x, lambda p: getattr(ImageEnhance, enhance)(p).enhance(factor))
    assert (blended.int() - pillows.int()).abs().max() <= 1
    assert torch.equal(blended[4], x[4])  # an even grey has no colour, contrast or edge to change


def test_the_identity_changes_nothing_and_signs_matter_where_there_are_any():
    x = images()
    for sign in SIGNS:
        assert torch.equal(operate(x, "identity", sign), x)
    for name in OPERATIONS:
        assert torch.equal(operate(x, name, 1), operate(x, name, -1)) == (name not in SIGNED), name


@pytest.mark.parametrize("name", sorted(SIGNED | {"posterize"}))
def test_magnitude_zero_changes_nothing(name):
    assert torch.equal(operate(images(), name, magnitude=0), images())


# --- drawing ---------------------------------------------------------------------------------------------------


def test_trap_15_operation_and_sign_are_drawn_once_for_the_whole_batch(generator):
    augment = RandAugment(RandAugmentConfig(operations=1), (32, 32))
    x = images(count=6)[:1].expand(7, -1, -1, -1)
    seen = set()
    for _ in range(60):
        view = augment(x, generator)
        assert torch.equal(view, view[:1].expand_as(view))
        seen.add(view[0].numpy().tobytes())
    assert len(seen) > 10


def test_operations_are_uniform_over_fourteen_and_signs_are_fair(generator):
    draws = torch.cat([RandAugment(RandAugmentConfig(operations=4000), (8, 8)).draw(generator) for _ in range(7)])
    counts = draws.bincount(minlength=28)
    assert len(counts) == 28
    assert ((counts - 1000).abs() < 5 * 1000**0.5).all()
    first, second = draws[::2], draws[1::2]  # one after the other, with replacement
    assert (first == second).sum() > 14000 / 28 / 2


def test_operations_follow_one_another(generator):
    augment = RandAugment(RandAugmentConfig(operations=3), (32, 32))
    drawn = augment.draw(generator)
    assert drawn.shape == (3,)
    choices = torch.cat([choice("equalize"), choice("shear_x", -1), choice("colour")])
    x = images()
    for name, sign in (("equalize", 1), ("shear_x", -1), ("colour", 1)):
        x = operate(x, name, sign)
    assert torch.equal(augment.apply_choices(images(), choices), x)


@pytest.mark.parametrize(("name", "sign"), all_choices())
def test_statistics_are_each_images_own_and_the_input_is_left_alone(name, sign):
    x = images()
    together = operate(x, name, sign)
    assert torch.equal(x, images())
    assert torch.equal(together, torch.cat([operate(image[None], name, sign) for image in x]))


def test_it_draws_from_the_given_generator_alone(generator):
    augment, state = RandAugment(RandAugmentConfig(), (32, 32)), torch.get_rng_state()
    once, again = (augment(images(), generator.manual_seed(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)


def test_nothing_is_read_back(generator):
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            assert function.name() not in ("aten::_local_scalar_dense", "aten::nonzero", "aten::index.Tensor")
            return function(*args, **(kwargs or {}))

    augment = RandAugment(RandAugmentConfig(), (32, 32))
    with Watch():
        augment(images(), generator)


def test_autocast_changes_nothing():
    for name, sign in all_choices():
        with torch.autocast("cpu", torch.bfloat16):
            inside = operate(images(), name, sign)
        assert torch.equal(inside, operate(images(), name, sign)), name


def test_what_it_cannot_take_is_refused():
    augment = RandAugment(RandAugmentConfig(), (32, 32))
    with pytest.raises(InputError, match="expected uint8 images of 32x32"):
        augment(images().float() / 255, torch.Generator())
    with pytest.raises(InputError, match="of 16x16"):
        augment(images(16), torch.Generator())
    for values in ({"magnitude": 31}, {"operations": 0}):
        with pytest.raises(ConfigError):
            RandAugmentConfig.parse(values)
