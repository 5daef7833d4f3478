"""The contract of a teacher: a network, a copy that follows it and a tap in, named loss terms out.

The engine keeps the copy, an exponential average of the network over its steps. A teacher says how fast it follows and
what the network learns from it.
"""

from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from s6mod.branch.base import Tap
from s6mod.networks import Network
from s6mod.registry import NamedConfig, Registry


class TeacherConfig(NamedConfig):
    """What every teacher has."""

    rate: float = Field(0.01, gt=0, lt=1, description="r: after each step the copy moves by r (w - w_T)")


class Teacher:
    """Base of all teachers. It has no state: what changes is the copy."""

    config_class: ClassVar[type[NamedConfig]]

    def __init__(self, config: Any) -> None:
        self.config = config

    def losses(self, network: Network, copy: Network, tap: Tap) -> dict[str, Tensor]:
        """Named scalar terms, already weighted, to be added to the method's loss.

        ``copy`` is in train mode, and its passes update buffers of its own; no gradient goes there.
        """
        raise NotImplementedError


teachers: Registry[Teacher] = Registry("teacher")
