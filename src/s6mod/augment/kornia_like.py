"""The augmentation of ER, OCM and OCM-CCLDC: resized crop, flip, colour jitter, greyscale.

It draws from the same distribution as kornia 0.6.8's RandomResizedCrop, RandomHorizontalFlip, ColorJitter and
RandomGrayscale in sequence, and gives the same pixels for the same parameters; it needs no kornia.
"""

from dataclasses import dataclass

import torch
from pydantic import Field, field_validator
from torch import Tensor

from s6mod.augment.base import Augment, check_images
from s6mod.augment.colour import grey, jitter
from s6mod.augment.crop import crop_resize, draw_boxes
from s6mod.config import Config


class KorniaAugmentConfig(Config):
    """How strongly images are cropped and coloured."""

    scale: tuple[float, float] = Field((0.2, 1.0), description="area of the crop as a fraction of the image, uniform")
    ratio: tuple[float, float] = Field((3 / 4, 4 / 3), description="height / width of the crop, log-uniform")
    attempts: int = Field(10, ge=1, description="crops tried until one is smaller than the image in both sides")
    flip_probability: float = Field(0.5, ge=0, le=1, description="chance that an image is mirrored left to right")
    jitter_probability: float = Field(0.8, ge=0, le=1, description="chance that an image's colours are jittered")
    brightness: float = Field(0.4, ge=0, le=1, description="factor uniform in 1 -+ this; multiplies the image")
    contrast: float = Field(0.4, ge=0, le=1, description="factor uniform in 1 -+ this; blends with the mean grey")
    saturation: float = Field(0.4, ge=0, le=1, description="factor uniform in 1 -+ this; blends with the grey image")
    hue: float = Field(0.1, ge=0, le=0.5, description="shift uniform in -+ this, in turns of the colour circle")
    grey_probability: float = Field(0.2, ge=0, le=1, description="chance that an image loses its colours")

    @field_validator("scale", "ratio")
    @classmethod
    def _ordered(cls, interval: tuple[float, float]) -> tuple[float, float]:
        if not 0 < interval[0] <= interval[1]:
            raise ValueError(f"expected 0 < lower <= upper, got {interval}; change the bounds")
        return interval

    @field_validator("scale")
    @classmethod
    def _inside(cls, scale: tuple[float, float]) -> tuple[float, float]:
        if scale[1] > 1:
            raise ValueError(
                f"expected a crop of at most the whole image, got {scale}; keep the upper bound at 1 or below"
            )
        return scale


@dataclass(frozen=True)
class KorniaParams:
    """What was drawn for one batch."""

    box: Tensor  # (B, 4) int64: top, left, height, width
    flip: Tensor  # (B,) bool
    jitter: Tensor  # (B,) bool
    factors: Tensor  # (B, 4) float32: brightness, contrast, saturation, hue (in turns)
    order: Tensor  # (4,) int64: a permutation of the columns of ``factors``, one for the whole batch
    grey: Tensor  # (B,) bool


class KorniaAugment(Augment[KorniaParams]):
    """Resized crop, flip, colour jitter, greyscale, in this order."""

    def __init__(self, config: KorniaAugmentConfig | None = None) -> None:
        self.config = config or KorniaAugmentConfig()

    def draw(self, batch: int, size: tuple[int, int], generator: torch.Generator, device: torch.device) -> KorniaParams:
        """Independent draws for each image, except for the order of the jitter."""
        c = self.config
        box = draw_boxes(batch, size, c.scale, c.ratio, c.attempts, generator, device)
        chance = torch.rand((3, batch), generator=generator, device=device)
        reach = (c.brightness, c.contrast, c.saturation, c.hue)
        factors = torch.rand((batch, 4), generator=generator, device=device)
        columns = [
            centre + r * (2 * u - 1) for centre, r, u in zip((1, 1, 1, 0), reach, factors.unbind(1), strict=True)
        ]
        return KorniaParams(
            box=box,
            flip=chance[0] < c.flip_probability,
            jitter=chance[1] < c.jitter_probability,
            factors=torch.stack(columns, dim=1),
            order=torch.rand(4, generator=generator, device=device).argsort(),
            grey=chance[2] < c.grey_probability,
        )

    def apply(self, x: Tensor, params: KorniaParams) -> Tensor:
        """``x`` (B, 3, H, W), float32 in [0, 1], seen as ``params`` say."""
        check_images(x)
        x = crop_resize(x, params.box, params.flip)
        x = _select(params.jitter, jitter(x, params.factors, params.order), x)
        return _select(params.grey, grey(x), x)


def _select(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Image by image ``yes`` where ``mask`` (B,), else ``no``."""
    # lerp by exactly 0 or 1 selects, and is faster than where on a CPU.
    return torch.lerp(no, yes, mask.to(no.dtype)[:, None, None, None])
