"""The augmentation of OnPro and MOSE ("transform layers"): flip, greyscale, resized crop.

The crop differs from the kornia-like one: a box may be as large as the image, it moves in half-pixel steps, pixels
are sampled without aligned corners, and a batch shares one pool of candidates. Pixels may have any range, so that
normalised images can be augmented too; the grey value is then that of the normalised channels. ``draw_params`` and
``plain_view`` define it in tensor operations; where it can, ``fused`` does the same in one kernel each.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import crop, fused
from s6mod.augment.base import Augment, check_images, to_float, uniform_numbers
from s6mod.augment.by_name import words
from s6mod.augment.colour import grey
from s6mod.augment.crop import Areas
from s6mod.config import Config, Words


class TransformLayersConfig(Config):
    """How strongly images are cropped, and how often they are mirrored and lose their colours; 0 is never."""

    flip_probability: float = Field(0.5, ge=0, le=1, description="chance that an image is mirrored left to right")
    grey_probability: float = Field(0.25, ge=0, le=1, description="chance that an image loses its colours")
    scale: Areas = Field((0.3, 1.0), description="area of the crop as a fraction of the image, uniform")

    words: ClassVar[Words] = words()


@dataclass(frozen=True)
class TransformLayersParams:
    """What was drawn for one batch. Rows before columns; positions run from -1 to 1 across the image."""

    flip: Tensor  # (B,) bool
    grey: Tensor  # (B,) bool
    extent: Tensor  # (B, 2) sides of the crop as fractions of the image's
    shift: Tensor  # (B, 2) position of the crop's centre in the (mirrored) image

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> "TransformLayersParams":
        """Memory for the parameters of ``batch`` images."""
        flip, grey = (torch.empty(batch, dtype=torch.bool, device=device) for _ in range(2))
        extent, shift = (torch.empty((batch, 2), dtype=torch.float32, device=device) for _ in range(2))
        return cls(flip, grey, extent, shift)


class TransformLayers(Augment[TransformLayersParams]):
    """Flip, greyscale, resized crop, in this order."""

    def __init__(self, config: TransformLayersConfig | None = None) -> None:
        self.config = config or TransformLayersConfig()

    def draw(
        self, batch: int, size: tuple[int, int], generator: torch.Generator, device: torch.device
    ) -> TransformLayersParams:
        """Independent draws for each image, except that all crops come from one pool."""
        numbers = uniform_numbers(generator, sum(uniform_parts(batch)))
        if not fused.available(numbers):
            return draw_params(numbers, batch, size, self.config)
        params = TransformLayersParams.empty(batch, device)
        fused.fill_transform_params(params, numbers, size, self.config)
        return params

    def apply(self, x: Tensor, params: TransformLayersParams) -> Tensor:
        """``x`` (B, 3, H, W), uint8 or float32 of any range, seen as ``params`` say."""
        check_images(x)
        return fused.transform_view(x, params) if fused.suits_transform(x) else plain_view(x, params)


def uniform_parts(batch: int) -> tuple[int, ...]:
    """How many uniform numbers go to the two masks, the crop candidates and the crop corners."""
    return 2 * batch, 2 * batch * crop.ATTEMPTS, 2 * batch


def draw_params(
    uniform: Tensor, batch: int, size: tuple[int, int], config: TransformLayersConfig
) -> TransformLayersParams:
    """What the ``uniform`` numbers in [0, 1) decide for ``batch`` images."""
    chance, candidates, corner = uniform.split(uniform_parts(batch))
    flip, mask = chance.view(2, batch)
    sides = draw_sides(candidates.view(2, -1), batch, size, config.scale, crop.RATIO)
    extent, shift = [], []
    for whole, side, u in zip(size, sides, corner.view(2, batch), strict=True):
        room = whole - side
        offset = torch.floor(u * (2 * room + 1)) - room  # a whole number from -room to room, of half pixels
        extent.append(side / whole)
        shift.append(offset / whole)
    return TransformLayersParams(
        flip < config.flip_probability,
        mask < config.grey_probability,
        torch.stack(extent, dim=1),
        torch.stack(shift, dim=1),
    )


def draw_sides(
    candidates: Tensor, batch: int, size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Tensor, ...]:
    """Heights (batch,) and widths (batch,) in whole pixels, from uniform numbers (2, candidates).

    A candidate has an area fraction U(scale) and a log-uniform aspect in ``ratio``; it is valid if it is not larger
    than the image. The first ``batch`` valid ones are taken in order; whoever gets none keeps the whole image.
    """
    H, W = size
    area = (scale[0] + (scale[1] - scale[0]) * candidates[0]) * (H * W)
    aspect = torch.exp(math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * candidates[1])
    height = torch.round(torch.sqrt(area * aspect))  # (candidates,)
    width = torch.round(torch.sqrt(area / aspect))
    valid = (height >= 1) & (height <= H) & (width >= 1) & (width <= W)

    # The n-th valid candidate stands where the number of valid ones so far first reaches n. The whole image is one
    # more entry at the end: the place that the search gives where it finds none.
    so_far = valid.cumsum(0)
    wanted = torch.arange(1, batch + 1, device=so_far.device)
    chosen = torch.searchsorted(so_far, wanted)
    return F.pad(height, (0, 1), value=H)[chosen], F.pad(width, (0, 1), value=W)[chosen]


def plain_view(x: Tensor, params: TransformLayersParams) -> Tensor:
    """The view in tensor operations: the definition, and what runs where there are no fused kernels."""
    x = to_float(x) if x.dtype == torch.uint8 else x
    x = torch.where(params.grey[:, None, None, None], grey(x), x)
    # Cropping a mirrored image is reading the columns of the crop at mirrored positions: one pass for both.
    rows, columns = (
        params.extent[:, axis, None] * _centres(x.shape[2 + axis], x.device) + params.shift[:, axis, None]
        for axis in (0, 1)
    )  # (B, H), (B, W)
    columns = torch.where(params.flip[:, None], -columns, columns)
    # By hand, since affine_grid multiplies matrices, which autocast would do in half precision.
    shape = (len(x), x.shape[2], x.shape[3])
    grid = torch.stack([columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _centres(size: int, device: torch.device) -> Tensor:
    """Positions of the pixels' centres in an image that runs from -1 to 1; (size,)."""
    return (2 * torch.arange(size, dtype=torch.float32, device=device) + 1) / size - 1
