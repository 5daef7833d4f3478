"""Heads with a projection that contrastive losses compare: a second linear one, or a deeper one and no classifier.

Trunk and pooling are those of the network that they stand before. Which loss reads the projection is the method's
business.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn

from s6mod.networks.adapted import Adapted
from s6mod.networks.base import Headed, Output
from s6mod.networks.resnet import ResNet18


class ProjectedOutput(Output):
    """An Output that also carries the projection z."""

    projection: Tensor  # (B, P)

    def __new__(cls, feature_map: Tensor, features: Tensor, logits: Tensor, projection: Tensor) -> Self:
        """The three parts of an Output, and the projection as an attribute."""
        output = super().__new__(cls, feature_map, features, logits)
        output.projection = projection
        return output


class ProjectedHead(Headed):
    """Its Output also carries a single linear projection of the pooled features."""

    def __init__(self, source: Any, image_shape: tuple[int, int, int], num_classes: int, projection_width: int) -> None:
        super().__init__(source, image_shape, num_classes)
        self.projection = nn.Linear(self.num_features, projection_width)

    def read(self, feature_map: Tensor) -> ProjectedOutput:
        """Pooled features, logits and projection."""
        out = super().read(feature_map)
        # In float32 like the head: similarities of projections are divided by a small temperature.
        with torch.autocast(feature_map.device.type, enabled=False):
            return ProjectedOutput(*out, self.projection(out.features))


class NoClassifier(Headed):
    """A projection of one hidden layer in place of the classifier: its logits are of no classes."""

    def __init__(self, source: Any, image_shape: tuple[int, int, int], projection_width: int) -> None:
        super().__init__(source, image_shape, num_classes=1)
        del self.head
        f = self.num_features
        self.projection = nn.Sequential(nn.Linear(f, f), nn.ReLU(), nn.Linear(f, projection_width))

    def read(self, feature_map: Tensor) -> ProjectedOutput:
        """Pooled features, no logits (B, 0), and the projection, in float32 like the linear one."""
        features = self.pool(feature_map)
        with torch.autocast(feature_map.device.type, enabled=False):
            return ProjectedOutput(feature_map, features, features[:, :0], self.projection(features))


class ProjectedResNet18(ProjectedHead, ResNet18):
    """ResNet18 with a classifier and a projection."""


class ProjectedAdapted(ProjectedHead, Adapted):
    """A person's module with a classifier and a projection."""


class UnclassifiedResNet18(NoClassifier, ResNet18):
    """ResNet18 with a projection alone."""


class UnclassifiedAdapted(NoClassifier, Adapted):
    """A person's module with a projection alone."""
