"""Backbones. A forward pass answers with the last feature map, the pooled features and the logits."""

from s6mod.networks.adapted import Adapted
from s6mod.networks.base import Network, Output
from s6mod.networks.experts import DEEPEST, ExpertsConfig, ExpertsOutput, ExpertsResNet18
from s6mod.networks.resnet import NetworkConfig, ResNet18

__all__ = [
    "DEEPEST",
    "Adapted",
    "ExpertsConfig",
    "ExpertsOutput",
    "ExpertsResNet18",
    "Network",
    "NetworkConfig",
    "Output",
    "ResNet18",
]
