"""The augmentations in two kernels each: where they can be used, and how they are launched.

A step on small images is bound by the number of kernels it launches, and the plain versions launch dozens or hundreds.
What is computed is defined by the plain versions in ``kornia_like`` and ``transform_layers``; the kernels themselves
are in ``kornia_like_triton`` and ``transform_layers_triton``.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s6mod.augment import colour, crop
from s6mod.errors import InputError
from s6mod.kernels import kernels_for

if TYPE_CHECKING:
    from s6mod.augment.kornia_like import KorniaAugmentConfig, KorniaParams
    from s6mod.augment.transform_layers import TransformLayersConfig, TransformLayersParams

KORNIA_LIKE = "s6mod.augment.kornia_like_triton"
TRANSFORM_LAYERS = "s6mod.augment.transform_layers_triton"
MAX_PIXELS = 8192  # a program keeps a whole image in registers, and this much they hold
IMAGES_PER_PROGRAM = 32  # when parameters are drawn: one a thread
POOL_BLOCK = 1024  # images of a program, and candidates it looks at in one go, when crops come from one pool
PIXEL_BLOCK = 1024  # pixels of a program where a pixel needs no other pixel of its view


def available(x: Tensor) -> bool:
    """Whether kernels can run on ``x``."""
    return kernels_for(x, KORNIA_LIKE) is not None


def suits(x: Tensor) -> bool:
    """Whether kornia-like views of ``x`` (B, 3, H, W) can be fused: not if too large or asked for gradients."""
    return suits_transform(x) and x.shape[2] * x.shape[3] <= MAX_PIXELS


def suits_transform(x: Tensor) -> bool:
    """Whether transformed views of ``x`` (B, 3, H, W) can be fused: not if they are asked for gradients."""
    wants_gradient = x.requires_grad and torch.is_grad_enabled()
    return available(x) and not wants_gradient


def _candidates(scale: tuple[float, float]) -> dict[str, float]:
    """What kernels need to know of the boxes that ``crop.draw_boxes`` chooses from."""
    return {
        "ATTEMPTS": crop.ATTEMPTS,
        "AREA_LOW": scale[0],
        "AREA_SPAN": scale[1] - scale[0],
        "LOG_ASPECT_LOW": math.log(crop.RATIO[0]),
        "LOG_ASPECT_SPAN": math.log(crop.RATIO[1] / crop.RATIO[0]),
    }


# --- kornia-like ----------------------------------------------------------------------------------------------


def fill_params(params: "KorniaParams", uniform: Tensor, size: tuple[int, int], config: "KorniaAugmentConfig") -> None:
    """Write into ``params`` what ``draw_params`` makes of the ``uniform`` numbers."""
    batch = len(params.flip)
    last_height, last_width = crop.last_resort(size, crop.RATIO)
    with torch.cuda.device_of(uniform):  # Triton launches on the current device
        kernels_for(uniform, KORNIA_LIKE).params_kernel[(-(-batch // IMAGES_PER_PROGRAM),)](
            uniform,
            *(params.box, params.flip, params.jitter, params.factors, params.order, params.grey),
            batch,
            H=size[0],
            W=size[1],
            **_candidates(config.scale),
            LAST_HEIGHT=last_height,
            LAST_WIDTH=last_width,
            FLIP=config.flip_probability,
            JITTER=config.jitter_probability,
            GREY=config.grey_probability,
            BRIGHTNESS_REACH=colour.REACH[colour.BRIGHTNESS],
            CONTRAST_REACH=colour.REACH[colour.CONTRAST],
            SATURATION_REACH=colour.REACH[colour.SATURATION],
            HUE_REACH=colour.REACH[colour.HUE],
            BLOCK=IMAGES_PER_PROGRAM,
            num_warps=1,
        )


def view(x: Tensor, params: "KorniaParams", out: Tensor | None = None) -> Tensor:
    """``x`` (B, 3, H, W), uint8 or float32 in [0, 1] and of any layout, seen as ``params`` say.

    The view is written to ``out``, of any layout and floating type but not ``x`` itself; if there is none, to new
    contiguous memory as float32.
    """
    B, _, H, W = x.shape
    out = _output(x, len(params.flip), out)
    block = 1 << (H * W - 1).bit_length()
    drawn = (params.box, params.flip, params.jitter, params.factors, params.order, params.grey)
    with torch.cuda.device_of(x):
        kernels_for(x, KORNIA_LIKE).view_kernel[(B,)](
            x,
            out,
            *(tensor.contiguous() for tensor in drawn),
            *x.stride(),
            *out.stride(),
            H=H,
            W=W,
            BLOCK=block,
            num_warps=min(max(block // 128, 1), 16),  # four pixels a thread, more if the image is large
        )
    return out


# --- transform layers -----------------------------------------------------------------------------------------


def fill_transform_params(
    params: "TransformLayersParams", uniform: Tensor, size: tuple[int, int], config: "TransformLayersConfig"
) -> None:
    """Write into ``params`` what ``draw_params`` makes of the ``uniform`` numbers."""
    batch = len(params.flip)
    with torch.cuda.device_of(uniform):
        kernels_for(uniform, TRANSFORM_LAYERS).params_kernel[(-(-batch // POOL_BLOCK),)](
            uniform,
            *(params.flip, params.grey, params.extent, params.shift),
            batch,
            H=size[0],
            W=size[1],
            **_candidates(config.scale),
            FLIP=config.flip_probability,
            GREY=config.grey_probability,
            BLOCK=POOL_BLOCK,
            num_warps=8,
        )


def transform_view(x: Tensor, params: "TransformLayersParams", out: Tensor | None = None) -> Tensor:
    """``x`` (B, 3, H, W), uint8 or float32 of any range and layout, seen as ``params`` say; ``out`` as in ``view``."""
    B, _, H, W = x.shape
    out = _output(x, len(params.flip), out)
    block = min(1 << (H * W - 1).bit_length(), PIXEL_BLOCK)
    drawn = (params.flip, params.grey, params.extent, params.shift)
    with torch.cuda.device_of(x):
        kernels_for(x, TRANSFORM_LAYERS).view_kernel[(B, -(-H * W // block))](
            x,
            out,
            *(tensor.contiguous() for tensor in drawn),
            *x.stride(),
            *out.stride(),
            H=H,
            W=W,
            BLOCK=block,
            num_warps=max(block // 128, 1),  # four pixels a thread
        )
    return out


# --- both -----------------------------------------------------------------------------------------------------


def _output(x: Tensor, num_params: int, out: Tensor | None) -> Tensor:
    """``out``, or new memory for a view of ``x``; refused if it or the parameters do not fit."""
    if out is None:
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    # A kernel does not notice where memory ends.
    if num_params != len(x) or out.shape != x.shape:
        raise InputError(
            f"expected parameters and output for images of shape {tuple(x.shape)}, got {num_params} parameters "
            f"and an output of shape {tuple(out.shape)}; draw and allocate for this batch"
        )
    return out
