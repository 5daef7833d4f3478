"""Random views of images: batched on the images' device, every draw from an explicit generator.

An augmentation first draws its parameters and then applies them, so that a view can be repeated and compared. Nothing
here knows labels, methods or networks, except for the pseudo-labels that the sixteen-fold rotation brings with it.
"""

from s6mod.augment.base import Augment, to_float, unaugmented, uniform_numbers
from s6mod.augment.by_name import Untouched, augmentation
from s6mod.augment.chain import ChainConfig, DistillationChain
from s6mod.augment.kornia_like import KorniaAugment, KorniaAugmentConfig, KorniaParams
from s6mod.augment.rand_augment import RandAugment, RandAugmentConfig
from s6mod.augment.rotate import rotate16, rotate16_labels
from s6mod.augment.transform_layers import TransformLayers, TransformLayersConfig, TransformLayersParams

__all__ = [
    "Augment",
    "ChainConfig",
    "DistillationChain",
    "KorniaAugment",
    "KorniaAugmentConfig",
    "KorniaParams",
    "RandAugment",
    "RandAugmentConfig",
    "TransformLayers",
    "TransformLayersConfig",
    "TransformLayersParams",
    "Untouched",
    "augmentation",
    "rotate16",
    "rotate16_labels",
    "to_float",
    "unaugmented",
    "uniform_numbers",
]
