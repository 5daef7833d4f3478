"""Images as a user of a learner holds them: arrays of either layout, PIL images, lists of them, or a single one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from s6mod.data.arrays import CHANNELS, as_uint8_images
from s6mod.data.images import BadImageError, pixels_of
from s6mod.errors import InputError
from s6mod.learner.classes import Labels, as_given

NAME = (str, Path)  # of a file

Images: TypeAlias = Tensor | NDArray[Any] | Sequence[Any] | Any  # at last, an image of PIL


def as_batch(x: Images) -> tuple[Tensor, bool]:
    """uint8 images (N, 3, H, W), and whether ``x`` is a single image.

    Channels come first, or last where no other reading is possible: (N, C, H, W), (N, H, W, C), (C, H, W), (H, W, C),
    or one grey image (H, W).
    """
    if isinstance(x, list | tuple) and any(map(_is_image, x)):
        return _joined(x), False
    if isinstance(x, NAME) or (isinstance(x, list | tuple) and x and isinstance(x[0], NAME)):
        raise InputError("expected images, got the name of a file; open it, for instance by PIL.Image.open")
    array = _array(x)
    shape = _shape(array)
    single = len(shape) == 2 or (len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS))
    if single:
        array = array[None, None] if len(shape) == 2 else array[None]
    shape = _shape(array)
    if len(shape) == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS:
        array = array.permute(0, 3, 1, 2) if isinstance(array, Tensor) else np.moveaxis(array, 3, 1)
    return as_uint8_images(array), single


def as_batch_for(x: Images, y: Labels) -> Tensor:
    """uint8 images (N, 3, H, W) that have the labels ``y``; three grey ones that look like one of colour are told."""
    images, single = as_batch(x)
    shape, labels = _shape(x), as_given(y)
    if single and len(shape) == 3 and shape[0] == 3 and hasattr(labels, "__len__") and len(labels) == 3:
        raise InputError(
            f"expected one label, since {shape} is read as the shape of one image in colour, got 3; "
            "give grey images a channel axis with x[:, None]"
        )
    return images


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", ()))


def _array(x: Any) -> Any:
    """An image of PIL as the pixels that its file would give to a data set: upright, whatever its depth."""
    if not isinstance(x, Image.Image):
        return x
    try:
        return pixels_of(x, None, "an image of PIL").transpose(1, 2, 0)
    except BadImageError as error:
        raise InputError(str(error).partition("; ")[0] + "; mend it or leave it out") from None


def _is_image(x: Any) -> bool:
    return isinstance(x, Image.Image) or getattr(x, "ndim", 0) in (2, 3)


def _joined(images: Sequence[Any]) -> Tensor:
    """(N, 3, H, W)."""
    found: list[Tensor] = []
    for position, image in enumerate(images):
        if not _is_image(image):
            what = f"shape {tuple(image.shape)}" if hasattr(image, "shape") else type(image).__name__
            raise InputError(f"expected an image at position {position}, got {what}; give images alone, or one array")
        found.append(as_batch(image)[0])
        if found[-1].shape != found[0].shape:
            first, other = (tuple(one.shape[1:]) for one in (found[0], found[-1]))
            raise InputError(
                f"expected images of one shape, got {first} and, at position {position}, {other}; resize them"
            )
    return torch.cat(found)
