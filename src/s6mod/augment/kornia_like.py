"""The augmentation of ER, OCM and OCM-CCLDC: resized crop, flip, colour jitter, greyscale.

With ``crop_probability`` 1 it draws from the same distribution as kornia 0.6.8's RandomResizedCrop,
RandomHorizontalFlip, ColorJitter and RandomGrayscale in sequence, and gives the same pixels for the same parameters; it
needs no kornia. Its crops are always smaller than the image, so that an image of 8x8 is never seen as it is: the word
``light`` crops every other one. ``draw_params`` and ``plain_view`` define all in tensor operations; where it can,
``fused`` does the same in one kernel each.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from s6mod.augment import colour, crop, fused
from s6mod.augment.base import Augment, check_images, to_float, uniform_numbers
from s6mod.augment.by_name import words
from s6mod.augment.colour import grey, jitter
from s6mod.augment.crop import Areas, crop_resize, draw_boxes
from s6mod.config import Config, Words


class KorniaAugmentConfig(Config):
    """How strongly images are cropped and coloured."""

    scale: Areas = Field((0.2, 1.0), description="area of the crop as a fraction of the image, uniform")
    crop_probability: float = Field(1.0, ge=0, le=1, description="chance that an image is cropped at all")
    flip_probability: float = Field(0.5, ge=0, le=1, description="chance that an image is mirrored left to right")
    jitter_probability: float = Field(0.8, ge=0, le=1, description="chance that an image's colours are jittered")
    grey_probability: float = Field(0.2, ge=0, le=1, description="chance that an image loses its colours")

    words: ClassVar[Words] = words(crop_probability=0.5, jitter_probability=0.0)


@dataclass(frozen=True)
class KorniaParams:
    """What was drawn for one batch."""

    box: Tensor  # (B, 4) int64: top, left, height, width
    flip: Tensor  # (B,) bool
    jitter: Tensor  # (B,) bool
    factors: Tensor  # (B, 4) float32: brightness, contrast, saturation, hue (in turns)
    order: Tensor  # (4,) int64: a permutation of the columns of ``factors``, one for the whole batch
    grey: Tensor  # (B,) bool

    @classmethod
    def empty(cls, batch: int, device: torch.device) -> "KorniaParams":
        """Memory for the parameters of ``batch`` images."""
        flip, jitter, grey = (torch.empty(batch, dtype=torch.bool, device=device) for _ in range(3))
        return cls(
            box=torch.empty((batch, 4), dtype=torch.int64, device=device),
            flip=flip,
            jitter=jitter,
            factors=torch.empty((batch, 4), dtype=torch.float32, device=device),
            order=torch.empty(4, dtype=torch.int64, device=device),
            grey=grey,
        )


class KorniaAugment(Augment[KorniaParams]):
    """Resized crop, flip, colour jitter, greyscale, in this order."""

    def __init__(self, config: KorniaAugmentConfig | None = None) -> None:
        self.config = config or KorniaAugmentConfig()

    def draw(self, batch: int, size: tuple[int, int], generator: torch.Generator, device: torch.device) -> KorniaParams:
        """Independent draws for each image, except for the order of the jitter."""
        numbers = uniform_numbers(generator, sum(uniform_parts(batch)))
        if fused.available(numbers):
            params = KorniaParams.empty(batch, device)
            fused.fill_params(params, numbers, size, self.config)
        else:
            params = draw_params(numbers, batch, size, self.config)
        if self.config.crop_probability < 1:
            whole = uniform_numbers(generator, batch) >= self.config.crop_probability
            for column, value in zip(params.box.unbind(1), (0, 0, *size), strict=True):
                column.masked_fill_(whole, value)
        return params

    def apply(self, x: Tensor, params: KorniaParams) -> Tensor:
        """``x`` (B, 3, H, W), uint8 or float32 in [0, 1], seen as ``params`` say."""
        check_images(x)
        if fused.suits(x):
            return fused.view(x, params)
        return plain_view(x, params, self.config.jitter_probability > 0, self.config.grey_probability > 0)


def uniform_parts(batch: int) -> tuple[int, ...]:
    """How many uniform numbers go to crop candidates, crop corners, the three masks, the factors and the order."""
    return 2 * batch * crop.ATTEMPTS, 2 * batch, 3 * batch, 4 * batch, 4


def draw_params(uniform: Tensor, batch: int, size: tuple[int, int], config: KorniaAugmentConfig) -> KorniaParams:
    """What the ``uniform`` numbers in [0, 1) decide for ``batch`` images."""
    candidates, corner, chance, factors, order = uniform.split(uniform_parts(batch))
    chance = chance.view(3, batch)
    columns = [
        centre + r * (2 * u - 1)
        for centre, r, u in zip((1, 1, 1, 0), colour.REACH, factors.view(batch, 4).unbind(1), strict=True)
    ]
    return KorniaParams(
        box=draw_boxes(candidates.view(2, batch, crop.ATTEMPTS), corner.view(2, batch), size, config.scale, crop.RATIO),
        flip=chance[0] < config.flip_probability,
        jitter=chance[1] < config.jitter_probability,
        factors=torch.stack(columns, dim=1),
        order=order.argsort(stable=True),
        grey=chance[2] < config.grey_probability,
    )


def plain_view(x: Tensor, params: KorniaParams, jitters: bool = True, greys: bool = True) -> Tensor:
    """The view in tensor operations: the definition, and what runs where there are no fused kernels.

    What is known to touch no image (``jitters``, ``greys``) is left out: the same bits in less time.
    """
    x = crop_resize(to_float(x) if x.dtype == torch.uint8 else x, params.box, params.flip)
    x = _select(params.jitter, jitter(x, params.factors, params.order), x) if jitters else x
    return _select(params.grey, grey(x), x) if greys else x


def _select(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Image by image ``yes`` where ``mask`` (B,), else ``no``."""
    # lerp by exactly 0 or 1 selects, and is faster than where on a CPU.
    return torch.lerp(no, yes, mask.to(no.dtype)[:, None, None, None])
