"""The multi-expert ResNet-18 of MOSE: each of the four stages feeds an expert with a feature and heads of its own.

The trunk is that of ``resnet``. A shallow expert weighs its stage's map by an attention and brings it down to the size
of the last map; the deepest expert reads the last map as it is. All features are averages over the whole map.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from s6mod.networks.attention import attend
from s6mod.networks.base import Network
from s6mod.networks.depthwise import Depthwise
from s6mod.networks.norm import BatchNorm
from s6mod.networks.resnet import NetworkConfig, ResNet18

NUM_EXPERTS = 4
DEEPEST = NUM_EXPERTS - 1


class ExpertsConfig(NetworkConfig):
    """Shape of the multi-expert backbone."""

    pooling: Literal["global"] = Field("global", description="experts average the whole map, whatever its size")
    projection: int = Field(128, ge=1, description="size of the projection that the contrastive loss compares")


class ExpertsOutput(NamedTuple):
    """An Output whose features are those of all experts, while its map and logits are those of the deepest one."""

    feature_map: Tensor  # (B, C, H, W)
    features: Tensor  # (B, 4, F)
    logits: Tensor  # (B, num_classes)
    expert_logits: Tensor  # (B, 4, num_classes)
    projections: Tensor  # (B, 4, P)
    student: Tensor  # (B, F): the deepest feature, adapted to be compared with the others

    @property
    def heads(self) -> Tensor:
        """The logits of all heads: those of the experts."""
        return self.expert_logits


class ExpertsResNet18(Network):
    """ResNet-18 with an expert at each stage."""

    def __init__(self, config: ExpertsConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        trunk = ResNet18(config, image_shape, num_classes)  # all but its head is ours
        self.stem, self.stages = trunk.stem, trunk.stages
        self.map_channels, self.map_size = trunk.map_channels, trunk.map_size
        self.num_features = trunk.num_features
        widths = [config.width * 2**stage for stage in range(NUM_EXPERTS)]
        self.attentions = nn.ModuleList(Attention(width) for width in widths[:DEEPEST])
        self.alignments = nn.ModuleList(
            nn.Sequential(*(down(width, 2 * width) for width in widths[stage:DEEPEST])) for stage in range(DEEPEST)
        )
        self.heads = nn.ModuleList(nn.Linear(self.num_features, num_classes) for _ in widths)
        self.projections = nn.ModuleList(nn.Linear(self.num_features, config.projection) for _ in widths)
        self.adaptation = nn.Linear(self.num_features, self.num_features)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # Fan-out counts all output channels, so depthwise convolutions start very small: std sqrt(2 / 9c).
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> ExpertsOutput:  # type: ignore[override]  # no joint views
        """(B, channels, H, W) float images -> ExpertsOutput."""
        x = self.stem(images)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        aligned = [
            align(attention(stage_map))
            for stage_map, attention, align in zip(maps[:DEEPEST], self.attentions, self.alignments, strict=True)
        ]
        pooled = [final.mean((2, 3)) for final in (*aligned, x)]
        # Heads and what they read stay in float32 under autocast, as in ResNet18.
        with torch.autocast(images.device.type, enabled=False):
            features = [feature.float() for feature in pooled]
            logits = [head(feature) for head, feature in zip(self.heads, features, strict=True)]
            projections = [project(feature) for project, feature in zip(self.projections, features, strict=True)]
            return ExpertsOutput(
                feature_map=x,
                features=torch.stack(features, 1),
                logits=logits[DEEPEST],
                expert_logits=torch.stack(logits, 1),
                projections=torch.stack(projections, 1),
                student=self.adaptation(features[DEEPEST]),
            )


class Attention(nn.Module):
    """A map weighed place by place and channel by channel, by weights in 0 ... 1 found at half its size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(down(channels, channels), BatchNorm(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> the same shape."""
        return attend(x, self.weigh(x))


def down(inputs: int, outputs: int) -> nn.Sequential:
    """Down(inputs -> outputs): two depthwise-separable convolutions, the first with stride 2; half the size."""
    return nn.Sequential(*_separable(inputs, inputs, stride=2), *_separable(inputs, outputs, stride=1))


def _separable(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    return [
        Depthwise(inputs, stride),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        BatchNorm(outputs),
    ]
