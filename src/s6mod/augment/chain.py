"""The distillation chain: images in four views, each harder than the one before it.

The first view is the image as it is, the second a crop, the third RandAugment of the second, the fourth RandAugment of
the third. What is learned from them is not decided here.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from s6mod.augment.base import to_float
from s6mod.augment.crop import Areas
from s6mod.augment.kornia_like import KorniaAugment, KorniaAugmentConfig
from s6mod.augment.rand_augment import RandAugment, RandAugmentConfig
from s6mod.config import Config


class ChainCropConfig(Config):
    """Crop and flip alone."""

    scale: Areas = Field((0.6, 1.0), description="area of the crop as a fraction of the image, uniform")
    flip_probability: float = Field(0.5, ge=0, le=1, description="chance that an image is mirrored left to right")


class ChainConfig(Config):
    """How much harder each view is."""

    crop: ChainCropConfig = ChainCropConfig()
    rand_augment: RandAugmentConfig = RandAugmentConfig()


class DistillationChain(nn.Module):
    """Four views of images of one size."""

    def __init__(self, config: ChainConfig, size: tuple[int, int]) -> None:
        super().__init__()
        self.crop = KorniaAugment(
            KorniaAugmentConfig(**dict(config.crop), jitter_probability=0.0, grey_probability=0.0)
        )
        self.rand_augment = RandAugment(config.rand_augment, size)

    def forward(self, images: Tensor, generator: torch.Generator) -> list[Tensor]:
        """x0, x1, x2, x3 of images (N, 3, H, W), uint8 or float32 in [0, 1]; float32 in [0, 1]."""
        x0 = to_float(images) if images.dtype == torch.uint8 else images
        x1 = self.crop(images, generator)
        x2 = self.rand_augment(to_uint8(x1), generator)
        x3 = self.rand_augment(x2, generator)
        return [x0, x1, to_float(x2), to_float(x3)]


def to_uint8(x: Tensor) -> Tensor:
    """float32 in [0, 1] -> uint8 levels, 256 intervals of nearly equal width; undoes ``to_float``."""
    return (x * 255.999).to(torch.uint8)
