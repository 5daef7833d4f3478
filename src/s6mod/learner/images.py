"""Images as a user of a learner holds them: arrays of either layout, PIL images, lists of them, or a single one."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from s6mod.data.arrays import CHANNELS, as_uint8_images
from s6mod.data.images import BadImageError, pixels_of
from s6mod.errors import InputError

Images: TypeAlias = Tensor | NDArray[Any] | Sequence[Any] | Any  # at last, an image of PIL


def as_batch(x: Images) -> tuple[Tensor, bool]:
    """uint8 images (N, 3, H, W), and whether ``x`` is a single image.

    Channels come first, or last where no other reading is possible: (N, C, H, W), (N, H, W, C), (C, H, W), (H, W, C),
    or one grey image (H, W).
    """
    if isinstance(x, list | tuple) and x and (isinstance(x[0], Image.Image) or getattr(x[0], "ndim", 0) in (2, 3)):
        return torch.cat([_one(image, position) for position, image in enumerate(_alike(x))]), False
    array = _array(x)
    shape = _shape(array)
    single = len(shape) == 2 or (len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS))
    if single:
        array = array[None, None] if len(shape) == 2 else array[None]
    shape = _shape(array)
    if len(shape) == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS:
        array = array.permute(0, 3, 1, 2) if isinstance(array, Tensor) else np.moveaxis(array, 3, 1)
    return as_uint8_images(array), single


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", ()))


def _array(x: Any) -> Any:
    """An image of PIL as the pixels that its file would give to a data set: upright, whatever its depth."""
    if not isinstance(x, Image.Image):
        return x
    try:
        return pixels_of(x, None, "an image of PIL")
    except BadImageError as error:
        raise InputError(str(error).partition("; ")[0] + "; mend it or leave it out") from None


def _one(image: Any, position: int) -> Tensor:
    found, single = as_batch(image)
    if not single:
        raise InputError(f"expected a list of images, got a batch at position {position}; join them to one array")
    return found


def _alike(images: Sequence[Any]) -> Sequence[Any]:
    arrays = [_array(image) for image in images]
    shapes = [_shape(array) for array in arrays]
    for position, shape in enumerate(shapes):
        if not shape:
            kind = type(arrays[position]).__name__
            raise InputError(f"expected an image at position {position}, got a {kind}; leave it out or convert it")
        if shape != shapes[0]:
            raise InputError(
                f"expected images of one shape, got {shapes[0]} and, at position {position}, {shape}; resize them"
            )
    return arrays
