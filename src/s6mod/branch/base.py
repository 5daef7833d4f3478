"""The contract between a method and a branch: taps in, named loss terms out.

A branch never holds a network and never knows the method it sits on. It sees what the method's cross-entropy saw
(a tap) and answers with loss terms that are added to the method's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from s6mod.registry import NamedConfig, Registry


@dataclass(frozen=True)
class Targets:
    """What a sample should be: one label, or two labels mixed (``(1 - mix) * labels + mix * partners``)."""

    labels: Tensor  # (B,) int64
    partners: Tensor | None = None  # (B,) int64
    mix: Tensor | None = None  # (B,) float in [0, 1]; 0 means: un-mixed

    def soft(self, num_classes: int) -> Tensor:
        """The target distribution q, (B, num_classes) float32."""
        q = _one_hot(self.labels, num_classes)
        if self.partners is None or self.mix is None:
            return q
        return torch.lerp(q, _one_hot(self.partners, num_classes), self.mix[:, None].float())

    def repeated(self, times: int) -> "Targets":
        """The same targets for so many views, one after the other."""
        if times == 1:
            return self
        partners = None if self.partners is None else self.partners.repeat(times)
        mix = None if self.mix is None else self.mix.repeat(times)
        return Targets(self.labels.repeat(times), partners, mix)

    def unmixed(self, q: Tensor) -> Tensor:
        """q (B, num_classes), in which the rows of mixed samples are zeros."""
        return q if self.mix is None else q * (self.mix == 0)[:, None]


def _one_hot(labels: Tensor, num_classes: int) -> Tensor:
    rows = torch.zeros(len(labels), num_classes, dtype=torch.float32, device=labels.device)
    return rows.scatter_(1, labels[:, None], 1.0)


@dataclass(frozen=True)
class Seen:
    """What a method's own pass has of the tap's samples, for a teacher: an augmented view and what the network said."""

    view: Tensor  # (B, channels, H, W) floats
    logits: Tensor  # (B, num_classes) of the view, gradient attached; (B, E, num_classes) of a network with E heads
    plain: tuple[Tensor, Tensor] | None = None  # both of the samples un-augmented, where the pass held them too

    @classmethod
    def both(cls, view: Tensor, logits: Tensor, split: int) -> "Seen":
        """Of a pass over two sets, each [plain ; augmented]; the first has ``split`` rows."""
        views, answers = (
            [torch.cat(parts) for parts in zip(*(rows.tensor_split(2) for rows in sets), strict=True)]
            for sets in ((rows[:split], rows[split:]) for rows in (view, logits))
        )
        return cls(views[1], answers[1], (views[0], answers[0]))


@dataclass(frozen=True)
class Tap:
    """What the cross-entropy of a method saw in this step.

    ``again()`` gives the feature map of the same samples in the same network under a fresh augmentation; a branch that
    wants its own view calls it, others never do. Called again, it gives another view.

    A teacher, which has a network of its own, wants what goes into one: ``seen()``, an augmented view that the method's
    pass held, where the method told it, and ``fresh()``, which makes another view of the same samples.
    """

    feature_map: Tensor  # (B, C, H, W), the backbone's last map, gradient attached
    logits: Tensor  # (B, num_classes) of the base head, gradient attached
    targets: Targets
    again: Callable[[], Tensor]
    seen: Callable[[], Seen] | None = None
    fresh: Callable[[], Tensor] | None = None


class BranchConfig(NamedConfig):
    """Base of the configurations of branches."""


@dataclass(frozen=True)
class BranchShape:
    """What a branch must know of the network it is put on."""

    channels: int
    map_size: tuple[int, int]
    num_classes: int


class Branch(nn.Module):
    """Base of all branches. Parameters join the base optimiser; buffers travel with the checkpoint.

    A branch that calls ``tap.again()`` in every step says so beforehand by ``wants_fresh_view``: a method may then run
    the trunk of its network on both views at once, which costs less than twice on one.
    """

    config_class: ClassVar[type[NamedConfig]]

    @classmethod
    def build(cls, config: NamedConfig, shape: BranchShape) -> Self:
        """A branch for a network of this shape; initial values come from torch's global generator."""
        raise NotImplementedError

    @classmethod
    def growing(cls, config: NamedConfig) -> NamedConfig:
        """The configuration that serves classes whose number nobody knows; by default any does."""
        return config

    @classmethod
    def check(cls, config: NamedConfig, num_classes: int) -> None:
        """Refuse, before anything is built, a configuration that cannot serve this many classes."""

    @classmethod
    def predicts(cls, config: NamedConfig) -> bool:
        """Whether its scores take the place of the method's linear head in prediction."""
        return False

    @property
    def wants_fresh_view(self) -> bool:
        """Whether ``losses`` looks at a fresh view (``tap.again``) in every step."""
        return False

    def losses(self, tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Named scalar terms, already weighted, to be added to the method's loss.

        All randomness comes from ``generator``, which belongs to the branch alone: the base method's draws are the
        same with and without a branch that does not ask for a fresh view (``tap.again``).
        """
        raise NotImplementedError

    def scores(self, feature_map: Tensor) -> Tensor | None:
        """Class scores (B, num_classes) if the branch can predict, else None. Eval mode, no gradient."""
        return None

    def features(self, feature_map: Tensor) -> Tensor | None:
        """The branch's own features (B, d) if it has some, else None. Eval mode, no gradient."""
        return None

    def figures(self) -> dict[str, Tensor]:
        """Small tensors worth logging (routing and the like), on the device, from the latest step; read rarely."""
        return {}

    def alarms(self, figures: dict[str, Any]) -> dict[str, str]:
        """What its figures, as numbers and lists, give cause to worry about: a sentence for each, by a name for it.

        A run tells the sentence once its name has come with every record of many steps.
        """
        return {}


branches: Registry[Branch] = Registry("branch")
