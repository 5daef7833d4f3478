"""Rows of pixels as images, and back: what libraries for tables hand over."""

from math import isqrt
from typing import Any

import numpy as np

from s6mod.data.arrays import CHANNELS
from s6mod.errors import InputError


def flattened(images: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Rows (N, F), and the shape of the images if there was one; (N, H, W) are grey ones."""
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) < 3 or 0 in shape:
        return images, None
    return np.asarray(images).reshape(shape[0], -1), shape[1:] if len(shape) > 3 else (1, *shape[1:])


def unflattened(rows: Any, image_shape: tuple[int, ...] | None) -> Any:
    """Rows (N, F) of NumPy or torch in the shape of their images: (C, H, W), (H, W, C), or grey (H, W)."""
    length = rows.shape[1]
    if image_shape is None:
        raise InputError(
            f"expected images, or rows of pixels and their shape, got rows of {length} values; "
            f"give image_shape={_guess(length) or '(C, H, W)'}"
        )
    shape = tuple(image_shape)
    if len(shape) not in (2, 3) or not all(isinstance(size, int) and size > 0 for size in shape):
        raise InputError(f"expected image_shape as (C, H, W), (H, W, C) or (H, W), got {image_shape!r}; mend it")
    shape = (1, *shape) if len(shape) == 2 else shape
    needed = shape[0] * shape[1] * shape[2]
    if length != needed:
        raise InputError(
            f"expected rows of {needed} values for images of shape {tuple(image_shape)}, got rows of {length}; "
            f"give image_shape={_guess(length) or 'another shape'}"
        )
    return rows.reshape(len(rows), *shape)


def _guess(length: int) -> tuple[int, int, int] | None:
    """The shape of a square image with so many values, if there is one."""
    for channels in CHANNELS:
        side = isqrt(length // channels)
        if side and channels * side * side == length:
            return channels, side, side
    return None
