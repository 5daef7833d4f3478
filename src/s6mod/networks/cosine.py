"""A head whose logits are cosines: of the features with a proxy for each class, divided by a temperature."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.networks.adapted import Adapted
from s6mod.networks.base import Headed, Output
from s6mod.networks.resnet import ResNet18


class CosineHead(Headed):
    """A head that has no bias and compares directions alone; its rows are the proxies."""

    def __init__(self, source: Any, image_shape: tuple[int, int, int], num_classes: int, temperature: float) -> None:
        super().__init__(source, image_shape, num_classes)
        self.head = nn.Linear(self.num_features, num_classes, bias=False)
        self.temperature = temperature

    def read(self, feature_map: Tensor) -> Output:
        """Pooled features and cosines / temperature."""
        features = self.pool(feature_map)
        with torch.autocast(feature_map.device.type, enabled=False):
            cosines = F.normalize(features, dim=1) @ F.normalize(self.head.weight, dim=1).T
            return Output(feature_map, features, cosines / self.temperature)


class CosineResNet18(CosineHead, ResNet18):
    """ResNet18 with such a head."""


class CosineAdapted(CosineHead, Adapted):
    """A person's module with such a head."""
