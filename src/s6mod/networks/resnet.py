"""ResNet-18 for small images: 3x3 stem without max-pooling, four stages of two basic blocks, one linear head.

The pooling window is fixed at 4x4, so a 64x64 input gives 2x2 pooled cells and four times as many features as a
32x32 input; ``pooling: global`` averages the whole map instead.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.config import Config
from s6mod.errors import InputError
from s6mod.networks.base import Headed
from s6mod.networks.norm import BatchNorm


class NetworkConfig(Config):
    """Shape of the backbone."""

    width: int = Field(
        64, ge=1, le=10_000, description="channels of the first stage; the others have 2, 4 and 8 times as many"
    )
    pooling: Literal["window", "global"] = Field(
        "window", description="average over fixed 4x4 windows of the last map, or over the whole map"
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm(outputs, relu=False)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H/stride, W/stride)."""
        out = self.bn1(self.conv1(x))
        y: Tensor = self.bn2(self.conv2(out), self.shortcut(x))
        return y


class ResNet18(Headed):
    """The backbone of every method but MOSE, with a linear head."""

    WINDOW = 4  # edge of the fixed pooling window
    joint_views = True

    def __init__(self, config: NetworkConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape
        if min(height, width) < 8:
            raise InputError(f"expected images of at least 8x8 pixels, got {height}x{width}; enlarge them")
        w = config.width
        self.stem = nn.Sequential(nn.Conv2d(channels, w, 3, 1, 1, bias=False), BatchNorm(w))
        self.stages = nn.Sequential(
            _stage(w, w, 1),
            _stage(w, 2 * w, 2),
            _stage(2 * w, 4 * w, 2),
            _stage(4 * w, 8 * w, 2),
        )
        self.map_channels = 8 * w
        self.map_size = (-(-height // 8), -(-width // 8))
        # Windows must cover the map: one that they do not divide is pooled as a whole.
        self.global_pooling = config.pooling == "global" or any(side % self.WINDOW for side in self.map_size)
        cells = 1 if self.global_pooling else (self.map_size[0] // self.WINDOW) * (self.map_size[1] // self.WINDOW)
        self.num_features = self.map_channels * cells
        self.head = nn.Linear(self.num_features, num_classes)

    def trunk(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) float images -> (B, map_channels, *map_size)."""
        feature_map: Tensor = self.stages(self.stem(images))
        return feature_map

    def pool(self, feature_map: Tensor) -> Tensor:
        """(B, map_channels, *map_size) -> features (B, num_features) in float32."""
        pooled = feature_map.mean((2, 3)) if self.global_pooling else F.avg_pool2d(feature_map, self.WINDOW)
        return torch.flatten(pooled.float(), 1)


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))
