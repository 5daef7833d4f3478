"""What every network answers with, and what the rest may ask of it."""

from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn


class Output(NamedTuple):
    """What a network computes for a batch."""

    feature_map: Tensor  # (B, C, H, W)
    features: Tensor  # (B, F), pooled
    logits: Tensor  # (B, num_classes)


class Network(nn.Module):
    """A backbone with its head: ``trunk`` makes the feature map, ``read`` the Output. A ``forward`` may do both itself.

    ``joint_views`` says whether samples of a trunk meet in ``norm.BatchNorm`` only, so that views may share a pass. A
    class with a ``forward`` of its own does not inherit it.
    """

    joint_views: ClassVar[bool] = False
    map_channels: int  # C of the feature map
    map_size: tuple[int, int]  # its H and W

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls) and "joint_views" not in vars(cls):
            cls.joint_views = False

    def trunk(self, images: Tensor) -> Tensor:
        """(B, channels, H, W) float images -> the last feature map."""
        raise NotImplementedError

    def read(self, feature_map: Tensor) -> Any:
        """The Output for a feature map."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Any:
        """(B, channels, H, W) float images -> Output."""
        return self.read(self.trunk(images))
