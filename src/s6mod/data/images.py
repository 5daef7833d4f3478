"""One image file, decoded with care: to RGB, upright, resized. What is too large or broken is refused.

The number of pixels is read from the header and checked before anything is decoded.
"""

import functools
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from s6mod.errors import DataError

RESIZING = "upright, RGB, the whole image to (H, W), bicubic with antialiasing (Pillow)"  # what read_image does
MAX_PIXELS = 64_000_000  # in one image; a decoder allocates several bytes for each
SIXTEEN_BITS = ("PNG", "PPM")  # formats whose mode "I" holds no more
RUNS_PROGRAMS = {"EPS"}  # formats that Pillow decodes by calling another program
NOT_DECODED = {"BUFR", "GRIB", "HDF5", "MPEG", "PALM", "PDF", "WMF"}  # those it knows by name alone, or writes only


class BadImageError(DataError):
    """An image that cannot be read; one among thousands may be passed over."""


@functools.cache
def image_suffixes() -> frozenset[str]:
    """The file name endings of all formats that are read, in lower case with their dot."""
    left = RUNS_PROGRAMS | NOT_DECODED
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name not in left)


def image_size(file: Path) -> tuple[int, int]:
    """(height, width) by the header alone."""
    with _opened(file, str(file)) as image:
        return image.height, image.width


def read_image(
    file: Path | BinaryIO, size: tuple[int, int] | None, where: str, most: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """The pixels (3, H, W) of an image file, resized to ``size`` (H, W) if given; ``where`` names it in messages."""
    with _opened(file, where) as image:
        return pixels_of(image, size, where, most)


def pixels_of(
    image: Image.Image, size: tuple[int, int] | None, where: str, most: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """The pixels (3, H, W) of a Pillow image of at most ``most`` pixels, grey repeated to RGB."""
    if image.width * image.height > most:
        raise BadImageError(
            f"expected at most {most:,} pixels in {where}, got {image.width}x{image.height}; shrink or remove it"
        )
    try:
        deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BITS)
        upright = _rgb(ImageOps.exif_transpose(image), deep)
        if size is not None and (upright.height, upright.width) != size:
            upright = upright.resize(size[::-1], Image.Resampling.BICUBIC)  # Pillow's filters are antialiased
        return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))
    except Exception as error:  # decoders fail on damaged files in any way that a program can
        raise _unreadable(where, error) from None


def _opened(file: Path | BinaryIO, where: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower, and an error
        try:
            image = Image.open(file, formats=_formats())
        except Exception as error:
            raise _unreadable(where, error) from None
    return image


@functools.cache
def _formats() -> list[str]:
    Image.init()
    return [name for name in Image.OPEN if name not in RUNS_PROGRAMS]


def _rgb(image: Image.Image, deep: bool) -> Image.Image:
    if deep:  # 16 bits: Pillow would cut all values above 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel")
    elif image.mode == "P":  # a palette may hold transparency
        image = image.convert("RGBA")
    return image.convert("RGB")


def _unreadable(where: str, error: Exception) -> BadImageError:
    reason = str(error).split("\n")[0] if isinstance(error, OSError | ValueError) else type(error).__name__
    if isinstance(error, UnidentifiedImageError):  # its own words hold an address in memory
        reason = "of no format that is known"
    return BadImageError(
        f"expected a readable image in {where}, got one that does not decode ({reason}); "
        "mend or remove it, or pass it over with s6mod data --skip-bad"
    )
