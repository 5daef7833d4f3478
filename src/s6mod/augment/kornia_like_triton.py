"""Triton kernels of the kornia-like augmentation: one that turns uniform numbers into parameters, one that makes views.

They compute what ``draw_params`` and ``plain_view`` in ``kornia_like`` say, there in tensors, here in one pass.
Importing this module needs Triton; ``fused`` imports it where Triton can be used, and launches from it.
"""

# Triton compiles these functions itself, and its blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

from s6mod.augment import colour

BRIGHTNESS = tl.constexpr(colour.BRIGHTNESS)
CONTRAST = tl.constexpr(colour.CONTRAST)
SATURATION = tl.constexpr(colour.SATURATION)
TINY = tl.constexpr(2.0**-126)  # the smallest normal float32
NO_FRACTION = tl.constexpr(2.0**23)  # from here on every float32 is a whole number


# --- parameters -----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["batch"])
def params_kernel(
    uniform, box, flip, jitter, factors, order, grey, batch,
    H: tl.constexpr, W: tl.constexpr, ATTEMPTS: tl.constexpr,
    AREA_LOW: tl.constexpr, AREA_SPAN: tl.constexpr, LOG_ASPECT_LOW: tl.constexpr, LOG_ASPECT_SPAN: tl.constexpr,
    LAST_HEIGHT: tl.constexpr, LAST_WIDTH: tl.constexpr,
    FLIP: tl.constexpr, JITTER: tl.constexpr, GREY: tl.constexpr,
    BRIGHTNESS_REACH: tl.constexpr, CONTRAST_REACH: tl.constexpr, SATURATION_REACH: tl.constexpr,
    HUE_REACH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Parameters of ``BLOCK`` images a program; ``uniform`` is laid out in ``uniform_parts``."""
    image = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = image < batch

    # From the last candidate to the first, so that the first that fits stands at the end.
    height = tl.full((BLOCK,), LAST_HEIGHT, tl.float32)
    width = tl.full((BLOCK,), LAST_WIDTH, tl.float32)
    for k in tl.static_range(ATTEMPTS):
        candidate = uniform + image * ATTEMPTS + (ATTEMPTS - 1 - k)
        area = AREA_LOW + AREA_SPAN * tl.load(candidate, there, 0.0)
        aspect = tl.exp(LOG_ASPECT_LOW + LOG_ASPECT_SPAN * tl.load(candidate + batch * ATTEMPTS, there, 0.0))
        h, w = sides(area * (H * W), aspect)
        fits = (h >= 1) & (h < H) & (w >= 1) & (w < W)
        height, width = tl.where(fits, h, height), tl.where(fits, w, width)

    rest = uniform + 2 * batch * ATTEMPTS
    left = tl.floor(tl.load(rest + image, there, 0.0) * (W + 1 - width))
    top = tl.floor(tl.load(rest + batch + image, there, 0.0) * (H + 1 - height))
    tl.store(box + 4 * image, top.to(tl.int64), there)
    tl.store(box + 4 * image + 1, left.to(tl.int64), there)
    tl.store(box + 4 * image + 2, height.to(tl.int64), there)
    tl.store(box + 4 * image + 3, width.to(tl.int64), there)

    chance = rest + 2 * batch + image
    tl.store(flip + image, tl.load(chance, there, 0.0) < FLIP, there)
    tl.store(jitter + image, tl.load(chance + batch, there, 0.0) < JITTER, there)
    tl.store(grey + image, tl.load(chance + 2 * batch, there, 0.0) < GREY, there)

    u = rest + 5 * batch + 4 * image
    factor = factors + 4 * image
    tl.store(factor, 1 + BRIGHTNESS_REACH * (2 * tl.load(u, there, 0.0) - 1), there)
    tl.store(factor + 1, 1 + CONTRAST_REACH * (2 * tl.load(u + 1, there, 0.0) - 1), there)
    tl.store(factor + 2, 1 + SATURATION_REACH * (2 * tl.load(u + 2, there, 0.0) - 1), there)
    tl.store(factor + 3, HUE_REACH * (2 * tl.load(u + 3, there, 0.0) - 1), there)

    # Each of the last four numbers is sorted by counting those before it.
    i = tl.arange(0, 4)
    mine, other = tl.load(rest + 9 * batch + i)[:, None], tl.load(rest + 9 * batch + i)[None, :]
    before = (other < mine) | ((other == mine) & (i[None, :] < i[:, None]))
    tl.store(order + tl.sum(before.to(tl.int32), axis=1), i.to(tl.int64))  # the same from every program


@triton.jit
def sides(area, aspect):
    """Height and width in whole pixels."""
    return _round(tl.sqrt_rn(area * aspect)), _round(tl.sqrt_rn(tl.div_rn(area, aspect)))


@triton.jit
def _round(value):
    """Of a small number, halves to even, as ``torch.round``."""
    return (value + NO_FRACTION) - NO_FRACTION


# --- views ----------------------------------------------------------------------------------------------------


@triton.jit
def view_kernel(
    x, out, box, flip, jitter, factors, order, grey,
    x_image, x_channel, x_row, x_column,
    out_image, out_channel, out_row, out_column,
    H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One image a program, from its pixels to those of its view; strides in elements."""
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.arange(0, BLOCK)
    there = pixel < H * W
    row, column = pixel // W, pixel % W
    box += 4 * image
    mirrored = tl.load(flip + image)

    above, below, down = _neighbours(row, tl.load(box), tl.load(box + 2), H)
    before, after, across = _neighbours(
        tl.where(mirrored, W - 1 - column, column), tl.load(box + 1), tl.load(box + 3), W
    )
    x += image * x_image
    above, below, before, after = above * x_row, below * x_row, before * x_column, after * x_column
    red = sample(x, above, below, down, before, after, across, there)
    green = sample(x + x_channel, above, below, down, before, after, across, there)
    blue = sample(x + 2 * x_channel, above, below, down, before, after, across, there)

    if tl.load(jitter + image):
        for place in tl.static_range(4):
            operation = tl.load(order + place)
            factor = tl.load(factors + 4 * image + operation)
            if operation == BRIGHTNESS:
                red, green, blue = _blend(red, green, blue, 0.0, factor)
            elif operation == CONTRAST:
                mean = tl.sum(tl.where(there, to_grey(red, green, blue), 0.0)) / (H * W)
                red, green, blue = _blend(red, green, blue, mean, factor)
            elif operation == SATURATION:
                red, green, blue = _blend(red, green, blue, to_grey(red, green, blue), factor)
            else:
                red, green, blue = _turn_hue(red, green, blue, factor)

    if tl.load(grey + image):
        red = to_grey(red, green, blue)
        green, blue = red, red

    out += image * out_image + row * out_row + column * out_column
    tl.store(out, red, there)
    tl.store(out + out_channel, green, there)
    tl.store(out + 2 * out_channel, blue, there)


@triton.jit
def _neighbours(point, start, length, SIZE: tl.constexpr):
    """As ``crop._neighbours``; divided with rounding to nearest, so that the whole image keeps its pixels."""
    position = tl.div_rn((length - 1).to(tl.float32), max(SIZE - 1, 1) * 1.0) * point
    low = tl.floor(position)
    before = start.to(tl.int32) + low.to(tl.int32)
    return before, tl.minimum(before + 1, (start + length - 1).to(tl.int32)), position - low


@triton.jit
def sample(x, above, below, down, before, after, across, there):
    """One channel between its four neighbouring pixels, as float32; of uint8 pixels, their 255ths."""
    left = _mix(_load(x + above + before, there), _load(x + below + before, there), down)
    right = _mix(_load(x + above + after, there), _load(x + below + after, there), down)
    value = _mix(left, right, across)
    if x.dtype.element_ty == tl.uint8:
        value = tl.div_rn(value, 255.0)
    return value


@triton.jit
def _load(pixels, there):
    return tl.load(pixels, there, 0).to(tl.float32)


@triton.jit
def _mix(a, b, weight):
    return a + weight * (b - a)


@triton.jit
def to_grey(red, green, blue):
    """As ``colour.grey``."""
    return 0.299 * red + 0.587 * green + 0.114 * blue


@triton.jit
def _blend(red, green, blue, base, factor):
    """As ``colour.blend``."""
    base = (1 - factor) * base
    return _clamp(factor * red + base), _clamp(factor * green + base), _clamp(factor * blue + base)


@triton.jit
def _clamp(value):
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def _turn_hue(red, green, blue, turns):
    """As ``colour.turn_hue``."""
    value = tl.maximum(tl.maximum(red, green), blue)
    chroma = value - tl.minimum(tl.minimum(red, green), blue)
    difference = tl.where(red == value, green - blue, tl.where(green == value, blue - red, red - green))
    sixths = tl.where(red == value, 0.0, tl.where(green == value, 2.0, 4.0))
    hue = difference / tl.maximum(chroma, TINY) + sixths + 6 * turns
    return _channel(hue, value, chroma), _channel(hue - 2, value, chroma), _channel(hue - 4, value, chroma)


@triton.jit
def _channel(away, value, chroma):
    """A channel whose own hue is ``away`` sixths from the pixel's."""
    away = tl.abs(away - 6 * tl.floor(away / 6 + 0.5))
    return value - chroma * _clamp(away - 1)
