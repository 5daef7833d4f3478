"""Triton kernels of the transform layers: one that turns uniform numbers into parameters, one that makes views.

They compute what ``draw_params`` and ``plain_view`` in ``transform_layers`` say, there in tensors, here in one pass.
Importing this module needs Triton; ``fused`` imports it where Triton can be used, and launches from it.
"""

# Triton compiles these functions itself, and its blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl

from s6mod.augment.kornia_like_triton import sample, sides, to_grey

# --- parameters -----------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["batch"])
def params_kernel(
    uniform, flip, grey, extent, shift, batch,
    H: tl.constexpr, W: tl.constexpr, ATTEMPTS: tl.constexpr,
    AREA_LOW: tl.constexpr, AREA_SPAN: tl.constexpr, LOG_ASPECT_LOW: tl.constexpr, LOG_ASPECT_SPAN: tl.constexpr,
    FLIP: tl.constexpr, GREY: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Parameters of ``BLOCK`` images a program; ``uniform`` is laid out in ``uniform_parts``."""
    lane = tl.arange(0, BLOCK)
    first = tl.program_id(0) * BLOCK
    last = tl.minimum(first + BLOCK, batch)
    pool = batch * ATTEMPTS
    candidates = uniform + 2 * batch
    corner = candidates + 2 * pool

    # The n-th valid candidate is image n's. Every program counts from the start of the pool, up to its own images.
    found = 0
    start = 0
    while (found < last) & (start < pool):
        inside = start + lane < pool
        candidate = candidates + start + lane
        area = AREA_LOW + AREA_SPAN * tl.load(candidate, inside, 0.0)
        aspect = tl.exp(LOG_ASPECT_LOW + LOG_ASPECT_SPAN * tl.load(candidate + pool, inside, 0.0))
        height, width = sides(area * (H * W), aspect)
        valid = inside & (height >= 1) & (height <= H) & (width >= 1) & (width <= W)
        taker = found + tl.cumsum(valid.to(tl.int32)) - 1
        mine = valid & (taker >= first) & (taker < last)
        _store_interval(extent, shift, corner, taker, height, mine, H)
        _store_interval(extent + 1, shift + 1, corner + batch, taker, width, mine, W)
        found += tl.sum(valid.to(tl.int32))
        start += BLOCK

    # Whoever got none keeps the whole image.
    image = first + lane
    there = image < last
    whole = there & (image >= found)
    for axis in tl.static_range(2):
        tl.store(extent + 2 * image + axis, 1.0, whole)
        tl.store(shift + 2 * image + axis, 0.0, whole)
    tl.store(flip + image, tl.load(uniform + image, there, 0.0) < FLIP, there)
    tl.store(grey + image, tl.load(uniform + batch + image, there, 0.0) < GREY, there)


@triton.jit
def _store_interval(extent, shift, corner, image, side, there, SIZE: tl.constexpr):
    """The crop along one axis, from its side and a uniform number that places it; divided as on the CPU."""
    room = SIZE - side
    offset = tl.floor(tl.load(corner + image, there, 0.0) * (2 * room + 1)) - room
    tl.store(extent + 2 * image, tl.div_rn(side, SIZE * 1.0), there)
    tl.store(shift + 2 * image, tl.div_rn(offset, SIZE * 1.0), there)


# --- views ----------------------------------------------------------------------------------------------------


@triton.jit
def view_kernel(
    x, out, flip, grey, extent, shift,
    x_image, x_channel, x_row, x_column,
    out_image, out_channel, out_row, out_column,
    H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``BLOCK`` pixels of one image a program; strides in elements."""
    image = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = pixel < H * W
    row, column = pixel // W, pixel % W
    extent += 2 * image
    shift += 2 * image

    vertical = _from_centre(row, tl.load(extent), tl.load(shift), H)
    horizontal = _from_centre(column, tl.load(extent + 1), tl.load(shift + 1), W)
    above, below, down = _reflected_neighbours(vertical, H)
    before, after, across = _reflected_neighbours(tl.where(tl.load(flip + image), -horizontal, horizontal), W)
    x += image * x_image
    above, below, before, after = above * x_row, below * x_row, before * x_column, after * x_column
    red = sample(x, above, below, down, before, after, across, there)
    green = sample(x + x_channel, above, below, down, before, after, across, there)
    blue = sample(x + 2 * x_channel, above, below, down, before, after, across, there)

    if tl.load(grey + image):  # grey between pixels is what lies between their greys
        red = to_grey(red, green, blue)
        green, blue = red, red

    out += image * out_image + row * out_row + column * out_column
    tl.store(out, red, there)
    tl.store(out + out_channel, green, there)
    tl.store(out + 2 * out_channel, blue, there)


@triton.jit
def _from_centre(point, extent, shift, SIZE: tl.constexpr):
    """Where the crop shows its pixel ``point``, in half pixels from the image's centre; exact for the whole image."""
    return extent * (2 * point + 1 - SIZE) + shift * SIZE


@triton.jit
def _reflected_neighbours(half_pixels, SIZE: tl.constexpr):
    """The pixel at or before a place, the pixel after it, and the weight of the latter; seen from outside the image, as
    if its edges were mirrors.
    """
    from_edge = tl.abs(half_pixels + SIZE) * 0.5
    from_edge -= 2 * SIZE * tl.floor(from_edge / (2 * SIZE))
    position = tl.minimum(from_edge, 2 * SIZE - from_edge) - 0.5
    position = tl.minimum(tl.maximum(position, 0.0), SIZE - 1.0)
    low = tl.floor(position)
    before = low.to(tl.int32)
    return before, tl.minimum(before + 1, SIZE - 1), position - low
