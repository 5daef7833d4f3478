"""Methods whose network takes pixels less a mean and divided by a standard deviation, instead of floats in [0, 1]."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from s6mod.methods.base import Method, MethodConfig

Positive = Annotated[float, Field(gt=0)]


class NormalisedConfig(MethodConfig):
    """Options of the normalisation."""

    mean: tuple[float, float, float] = Field(
        (125.3 / 255, 123.0 / 255, 113.9 / 255), description="subtracted from the channels; default: CIFAR's"
    )
    std: tuple[Positive, Positive, Positive] = Field(
        (63.0 / 255, 62.1 / 255, 66.7 / 255), description="divides the channels; default: CIFAR's"
    )


class NormalisedMethod(Method):
    """A method that prepares images for learning and for predicting by normalising them."""

    config: NormalisedConfig
    mean: Tensor  # (3, 1, 1)
    std: Tensor

    def __init__(self, config: NormalisedConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        for name, values in (("mean", config.mean), ("std", config.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 images -> normalised ones."""
        return (super().prepare(images) - self.mean) / self.std
