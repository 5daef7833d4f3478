"""What every network answers with, and what the rest may ask of it."""

from typing import ClassVar, NamedTuple

from torch import Tensor, nn


class Output(NamedTuple):
    """What a network computes for a batch."""

    feature_map: Tensor  # (B, C, H, W)
    features: Tensor  # (B, F), pooled
    logits: Tensor  # (B, num_classes)


class Network(nn.Module):
    """A backbone with its head; ``forward`` returns an Output."""

    joint_views: ClassVar[bool] = False  # whether samples meet in ``norm.BatchNorm`` only: views may share a pass
    map_channels: int  # C of the feature map
    map_size: tuple[int, int]  # its H and W
