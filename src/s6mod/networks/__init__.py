"""Backbones. A forward pass answers with the last feature map, the pooled features and the logits."""

from s6mod.networks.base import Network, Output
from s6mod.networks.resnet import NetworkConfig, ResNet18

__all__ = ["Network", "NetworkConfig", "Output", "ResNet18"]
