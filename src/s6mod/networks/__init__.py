"""Backbones. A forward pass answers with the last feature map, the pooled features and the logits."""

from s6mod.networks.resnet import NetworkConfig, Output, ResNet18

__all__ = ["NetworkConfig", "Output", "ResNet18"]
