"""The kornia-like augmentation in two kernels: where it can be used, and how they are launched.

A step on small images is bound by the number of kernels it launches, and the plain version launches hundreds. What is
computed is defined by the plain version in ``kornia_like``; the kernels themselves are in ``kernels``.
"""

import importlib
import math
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from s6mod.augment.crop import last_resort
from s6mod.errors import InputError

if TYPE_CHECKING:
    from s6mod.augment.kornia_like import KorniaAugmentConfig, KorniaParams

MAX_PIXELS = 8192  # a program keeps a whole image in registers, and this much they hold
IMAGES_PER_PROGRAM = 32  # when parameters are drawn: one a thread


def available(x: Tensor) -> bool:
    """Whether kernels can run on ``x``: it is on a CUDA device and Triton is installed.

    Triton's interpreter, chosen by TRITON_INTERPRET=1 before the first use, runs them on a CPU; slowly, for tests.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (x.is_cuda or (interpreted and x.device.type == "cpu")) and _kernels() is not None


def suits(x: Tensor) -> bool:
    """Whether views of ``x`` (B, 3, H, W) can be fused: not if they are too large or asked for gradients."""
    wants_gradient = x.requires_grad and torch.is_grad_enabled()
    return available(x) and x.shape[2] * x.shape[3] <= MAX_PIXELS and not wants_gradient


@cache
def _kernels() -> Any:
    """The kernels, imported on first use since that takes a while, or None where there is no Triton."""
    try:
        return importlib.import_module("s6mod.augment.kernels")
    except ImportError:
        return None


def fill_params(params: "KorniaParams", uniform: Tensor, size: tuple[int, int], config: "KorniaAugmentConfig") -> None:
    """Write into ``params`` what ``draw_params`` makes of the ``uniform`` numbers."""
    batch = len(params.flip)
    last_height, last_width = last_resort(size, config.ratio)
    with torch.cuda.device_of(uniform):  # Triton launches on the current device
        _kernels().params_kernel[(-(-batch // IMAGES_PER_PROGRAM),)](
            uniform,
            *(params.box, params.flip, params.jitter, params.factors, params.order, params.grey),
            batch,
            H=size[0],
            W=size[1],
            ATTEMPTS=config.attempts,
            AREA_LOW=config.scale[0],
            AREA_SPAN=config.scale[1] - config.scale[0],
            LOG_ASPECT_LOW=math.log(config.ratio[0]),
            LOG_ASPECT_SPAN=math.log(config.ratio[1] / config.ratio[0]),
            LAST_HEIGHT=last_height,
            LAST_WIDTH=last_width,
            FLIP=config.flip_probability,
            JITTER=config.jitter_probability,
            GREY=config.grey_probability,
            BRIGHTNESS_REACH=config.brightness,
            CONTRAST_REACH=config.contrast,
            SATURATION_REACH=config.saturation,
            HUE_REACH=config.hue,
            BLOCK=IMAGES_PER_PROGRAM,
            num_warps=1,
        )


def view(x: Tensor, params: "KorniaParams", out: Tensor | None = None) -> Tensor:
    """``x`` (B, 3, H, W), uint8 or float32 in [0, 1] and of any layout, seen as ``params`` say.

    The view is written to ``out``, of any layout and floating type but not ``x`` itself; if there is none, to new
    contiguous memory as float32.
    """
    B, _, H, W = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    # A kernel does not notice where memory ends.
    if len(params.flip) != B or out.shape != x.shape:
        raise InputError(
            f"expected parameters and output for images of shape {tuple(x.shape)}, got {len(params.flip)} parameters "
            f"and an output of shape {tuple(out.shape)}; draw and allocate for this batch"
        )
    block = 1 << (H * W - 1).bit_length()
    drawn = (params.box, params.flip, params.jitter, params.factors, params.order, params.grey)
    with torch.cuda.device_of(x):
        _kernels().view_kernel[(B,)](
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
