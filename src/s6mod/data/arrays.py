"""Images and labels as users hold them, turned into the one form the package computes with.

This is the door: whatever passes is uint8 (N, 3, H, W) and int64 (N,), whatever does not is refused with one
sentence. What the arrays mean together (a data set) is not decided here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s6mod.errors import DataError, InputError

Images: TypeAlias = Tensor | npt.NDArray[Any]
Labels: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[int]

CHANNELS = (1, 3)  # grey, RGB
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # torch cannot compare those of eight bits
OVERSTEP = 0.001  # beyond [0, 1], as rounding leaves it when images are resized or scaled: no level of 255 changes
INTEGERS = (
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def as_uint8_images(x: Images) -> Tensor:
    """Images (N, C, H, W), C = 1 or 3, as uint8 (N, 3, H, W) on the device where they are.

    uint8 passes as it is (RGB is not copied); floats in [0, 1] are rounded to 255ths, which reads their range back to
    the host once; grey is repeated three times, since the colour augmentations and the backbones want RGB.
    """
    images = _as_tensor(x, "images", "convert it")
    _check_image_shape(images)
    if images.dtype in FLOATS:
        low, high = (bound.item() for bound in torch.aminmax(images.detach()))
        if low != low:  # a NaN anywhere makes both bounds NaN
            raise InputError("expected finite image values, got NaN; mend or drop the images that hold it")
        if low < -OVERSTEP or high > 1 + OVERSTEP:
            raise InputError(
                f"expected float images in [0, 1], got values in [{low:.9g}, {high:.9g}]; "
                "divide 0..255 values by 255, undo a normalisation, or pass uint8"
            )
        # In float32, because a product in half precision would be rounded once more before it becomes an integer.
        images = images.detach().float().mul(255).round_().to(torch.uint8)
    elif images.dtype != torch.uint8:
        raise InputError(
            f"expected uint8 images or floats in [0, 1], got {_dtype(images)}; "
            + (
                "convert 0..255 values to uint8"
                if images.dtype in INTEGERS
                else "convert them with x.float() (NumPy: x.astype(float))"
            )
        )
    return images if images.shape[1] == 3 else images.repeat(1, 3, 1, 1)


def as_labels(
    y: Labels, num_classes: int | None = None, length: int | None = None, todo: str = "number the classes 0, 1, ..."
) -> Tensor:
    """Class ids as an int64 (N,) tensor on the host.

    ``num_classes`` bounds the ids (None: any id from 0 on), ``length`` is the number of images they belong to,
    ``todo`` is what is said to do about other labels.
    """
    labels = _as_tensor(y, "labels", todo)
    if labels.ndim != 1:
        raise InputError(f"expected labels of shape (N,), got {tuple(labels.shape)}; pass one class id for each image")
    if length is not None and len(labels) != length:
        raise InputError(
            f"expected {length} labels, one for each image, got {len(labels)}; pass as many labels as images"
        )
    if len(labels) == 0:
        raise InputError("expected at least one label, got none; pass a non-empty batch")
    if labels.dtype not in INTEGERS:
        raise InputError(f"expected integer labels, got {_dtype(labels)}; pass class ids as int64")
    given, labels = labels, labels.to("cpu", torch.int64)
    if labels.is_inference():  # such a tensor cannot go into a backward pass, a copy made outside of the mode can
        labels = labels.clone()
    wrong = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
    if wrong.any():
        position = int(wrong.int().argmax())
        known = "from 0 on" if num_classes is None else f"in 0..{num_classes - 1}"
        raise InputError(f"expected labels {known}, got {given[position].item()} at position {position}; {todo}")
    return labels


@contextmanager
def read_from(where: object) -> Iterator[None]:
    """Images or labels that are refused meanwhile are the data's fault there."""
    try:
        yield
    except InputError as error:
        raise DataError(f"{where}: {error}") from None


def _as_tensor(x: Any, what: str, todo: str) -> Tensor:
    if isinstance(x, Tensor):
        if x.layout is not torch.strided or x.is_meta:
            kind = "a meta tensor" if x.is_meta else f"a tensor of layout {str(x.layout).removeprefix('torch.')}"
            raise InputError(f"expected {what} as a dense tensor with values, got {kind}; convert it")
        return x
    try:
        array = np.asarray(x)
        # torch takes neither foreign byte order nor negative strides, and warns about read-only memory.
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        kind = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"expected {what} as an array or list of numbers, got {kind}; {todo}") from None


def _check_image_shape(images: Tensor) -> None:
    shape = tuple(images.shape)
    if len(shape) == 4 and shape[1] in CHANNELS and shape[0] > 0 and min(shape[2:]) > 0:
        return
    if shape and shape[0] == 0:
        raise InputError(f"expected at least one image, got an empty batch of shape {shape}; pass a non-empty batch")
    if len(shape) == 4 and shape[3] in CHANNELS:
        hint = "this looks like (N, H, W, C): move the channels with x.transpose(0, 3, 1, 2) (torch: x.permute)"
    elif len(shape) == 3 and shape[0] in CHANNELS:
        hint = "add the batch axis with x[None]"
    elif len(shape) == 3 and shape[2] in CHANNELS:
        hint = "this looks like one image (H, W, C): x.transpose(2, 0, 1)[None] (torch: x.permute) is a batch of it"
    elif len(shape) in (3, 4) and shape[-1] == 4:
        hint = "this looks like RGBA with the channels last: leave alpha out with x[..., :3]"
    elif len(shape) == 3:
        hint = "add the channel axis with x[:, None]"
    elif len(shape) == 2:
        hint = "this looks like one grey image (H, W): x[None, None] is a batch of it"
    else:
        hint = "pass grey or RGB images with the channels in front of height and width"
    raise InputError(f"expected images of shape (N, C, H, W) with C = 1 or 3, got {shape}; {hint}")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
