"""What every network answers with, and what the rest may ask of it."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from s6mod.networks.norm import apart


class Output(NamedTuple):
    """What a network computes for a batch."""

    feature_map: Tensor  # (B, C, H, W)
    features: Tensor  # (B, F), pooled
    logits: Tensor  # (B, num_classes)

    @property
    def heads(self) -> Tensor:
        """The logits of all heads: here of the one there is."""
        return self.logits


class Network(nn.Module):
    """A backbone with its head: ``trunk`` makes the feature map, ``read`` an Output of it. A ``forward`` may do both.

    ``joint_views`` says whether samples of the trunk meet in ``norm.BatchNorm`` only: then several views of the same
    samples may share a pass. A class with a ``forward`` of its own does not inherit it.
    """

    joint_views: ClassVar[bool] = False
    map_channels: int  # C of the feature map
    map_size: tuple[int, int]  # its H and W

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        said, done = (next(each for each in cls.__mro__ if name in vars(each)) for name in ("joint_views", "forward"))
        if cls.__mro__.index(done) < cls.__mro__.index(said):
            cls.joint_views = False

    def trunk(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) float images -> the last feature map. Abstract, as ``read`` is."""
        raise NotImplementedError(f"expected a trunk or a forward in {type(self).__name__}, got neither; write one")

    def read(self, feature_map: Tensor) -> Any:
        """The Output for a feature map, which it holds."""
        raise NotImplementedError(f"expected a read beside the trunk in {type(self).__name__}, got none; write it")

    def forward(self, images: Tensor, views: int = 1) -> Any:
        """(B, channels, H, W) float images -> Output.

        More than one of ``views`` are the same samples again and again, one view after the other, which BatchNorm keeps
        apart. The Output is that of the first, and the feature maps of the others come with it in a list.
        """
        if views == 1:
            return self.read(self.trunk(images))
        with apart(self, views):
            first, *others = self.trunk(images).chunk(views)
        return self.read(first), others


class Headed(Network):
    """A network with a head that reads pooled features: a linear one, or what a class in front of it makes of it.

    Such a class comes before the trunk among the bases, as in ``class CosineResNet18(CosineHead, ResNet18)``. So every
    head goes with every trunk.
    """

    num_features: int  # F of the pooled features
    head: nn.Linear

    def pool(self, feature_map: Tensor) -> Tensor:
        """(B, map_channels, *map_size) -> features (B, num_features) in float32. Abstract."""
        raise NotImplementedError(f"expected a pool beside the trunk in {type(self).__name__}, got none; write it")

    def read(self, feature_map: Tensor) -> Output:
        """Pooled features and logits."""
        features = self.pool(feature_map)
        # The head and what it reads stay in float32 under autocast: bfloat16 logits tie where the margin is small.
        with torch.autocast(feature_map.device.type, enabled=False):
            return Output(feature_map, features, self.head(features))
