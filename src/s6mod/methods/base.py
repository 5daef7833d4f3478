"""The contract of a method: fifteen verbs that know neither loop nor optimiser; three must be written, twelve may.

``plan`` runs on the host and decides (which memory rows to replay); ``draw`` and ``losses`` run on the device and
compute, without reading anything back, so that a whole step can be captured and replayed. A method steps no optimiser
and writes no memory. Register a class and it can be trained, saved, resumed and tested.
"""

import copy
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from s6mod.augment import to_float
from s6mod.branch.base import Branch, Seen, Tap, Targets
from s6mod.config import Config
from s6mod.errors import InputError
from s6mod.memory import ReplayMemory, Reservoir
from s6mod.metrics import ncm_scores, nearest_centroid
from s6mod.networks import Adapted, Network, NetworkConfig, Output, ResNet18
from s6mod.registry import NamedConfig, Registry

Rate = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Config):
    """One optimiser for all parameters, biases and BatchNorm included; no schedule."""

    name: Literal["adamw", "adam", "sgd"] = Field(
        "adamw", description="adamw decouples the decay, adam and sgd add it to the gradient"
    )
    lr: float = Field(5e-4, gt=0, description="learning rate; sgd wants a larger one, such as 0.05")
    betas: tuple[Rate, Rate] = Field((0.9, 0.999), description="adam and adamw: decay rates of the moment estimates")
    eps: float = Field(1e-8, gt=0, description="adam and adamw: added to the denominator")
    momentum: Rate = Field(0.9, description="sgd: share of the step before in each step")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay")


class MethodConfig(NamedConfig):
    """What every method has."""

    network: NetworkConfig = NetworkConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    memory_batch: int = Field(64, ge=1, description="images replayed from memory in each step")


@dataclass
class Task:
    """What the host knows about where in the stream we are; labels of the current batch are already counted."""

    index: int = 0  # boundaries passed so far
    step: int = 0  # batches learned since the last boundary
    seen: list[int] = field(default_factory=list)  # classes in order of first appearance
    current: list[int] = field(default_factory=list)  # those that appeared since the last boundary

    def with_classes(self, labels: Tensor) -> "Task":
        """This with the classes of a batch: another one, unless all of them have appeared in it."""
        batch = labels.tolist()
        appearing = set(batch).difference(self.current)
        if not appearing:
            return self
        seen = list(dict.fromkeys([*self.seen, *batch]))
        return replace(self, seen=seen, current=self.current + [label for label in seen if label in appearing])


@dataclass(frozen=True)
class Plan:
    """What the host decided for a step.

    ``rows`` are small integer tensors that the device part needs. ``path`` names the code path where the device part
    has more than one (first task, first batch, ...): two steps with equal path and equal shapes run the same kernels.
    """

    rows: dict[str, Tensor]
    path: tuple[Hashable, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.rows.items():
            if value.dtype != torch.int64 or value.dim() != 1:
                raise InputError(
                    f"expected the rows {name!r} of a plan as an int64 tensor with one axis, got {value.dtype} of "
                    f"shape {tuple(value.shape)}; give numbers of rows, of a mask its nonzero().flatten()"
                )


@dataclass(frozen=True)
class Batch:
    """A stream batch on the device."""

    images: Tensor  # (B, C, H, W) uint8
    labels: Tensor  # (B,) int64


@dataclass(frozen=True)
class Losses:
    """What one peer's pass gave: weighted terms to be summed, the tap for a branch, and what to carry on."""

    terms: dict[str, Tensor]
    tap: Tap
    carry: Any = None


class Peer(nn.Module):
    """One network with what belongs to it alone: its branch, and a copy of its past where a method keeps one."""

    def __init__(self, network: Network, branch: Branch | None) -> None:
        super().__init__()
        self.network = network
        self.branch = branch
        self.teacher: Network | None = None
        self.number = 0  # which peer of its learner it is

    def remember(self) -> None:
        """Make the teacher a frozen copy of the network as it is now.

        A teacher that is there already is overwritten in place: captured steps go on reading it where it was.
        """
        if self.teacher is None:
            self.teacher = copy.deepcopy(self.network).requires_grad_(False)
        else:
            self.teacher.load_state_dict(self.network.state_dict())

    def tap(self, out: Any, targets: Targets, view: Callable[[], Tensor]) -> Tap:
        """What a branch sees of the network's output ``out``; ``view()`` makes a fresh view of the same samples."""
        return Tap(out.feature_map, out.logits, targets, lambda: self.network(view()).feature_map, fresh=view)

    def look(self, view: Tensor, targets: Targets, fresh: Callable[[], Tensor]) -> tuple[Output, Tap]:
        """The network's output for ``view``, and its tap; ``fresh()`` makes another view of the same samples.

        Where the branch wants that view as well, both go through the trunk in one pass, BatchNorm keeping them apart,
        and the first ``again()`` hands it out; the head reads the first alone.
        """
        if self.branch is None or not (self.branch.wants_fresh_view and self.network.joint_views):
            out = self.network(view)
            return out, replace(self.tap(out, targets, fresh), seen=lambda: Seen(view, out.heads))
        out, (second,) = self.network(torch.cat([view, fresh()]), views=2)
        tap, waiting = self.tap(out, targets, fresh), [second]
        return out, replace(
            tap, seen=lambda: Seen(view, out.heads), again=lambda: waiting.pop() if waiting else tap.again()
        )

    def state_tree(self) -> dict[str, Any]:
        """The state of each part there is, by name."""
        parts = {"network": self.network, "branch": self.branch, "teacher": self.teacher}
        return {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_tree(self, tree: dict[str, Any]) -> None:
        """Take over the parts of a saved peer; a teacher is made if it had one."""
        self.network.load_state_dict(tree["network"])
        if self.branch is not None:
            self.branch.load_state_dict(tree["branch"])
        if "teacher" in tree:
            self.remember()
            assert self.teacher is not None
            self.teacher.load_state_dict(tree["teacher"])

    def learned_parameters(self) -> list[nn.Parameter]:
        """What the optimiser updates: the network, then the branch."""
        return [p for part in (self.network, self.branch) if part is not None for p in part.parameters()]


class Method(nn.Module):
    """Base of all methods. Buffers registered on it (prototypes and the like) travel with the checkpoint.

    A method writes ``plan``, ``draw`` and ``losses``. The twelve other verbs have a default: ``make_network``,
    ``adapt``, ``values``, ``couple``, ``gradients``, ``commit``, ``keep``, ``end_task``, ``ask``, ``prepare``,
    ``reference`` and ``scores``.
    """

    config_class: ClassVar[type[NamedConfig]]
    needs_boundaries: ClassVar[bool] = False  # whether end_task or Task.index means anything to it
    reservoir: ClassVar[Reservoir] = "sequential"
    primary: ClassVar[str] = "head"  # the score table that predicts
    memory_free: ClassVar[frozenset[str]] = frozenset({"head"})  # tables that ``scores`` gives without a reference
    memory_bound: ClassVar[frozenset[str]] = frozenset({"ncm"})  # those that it gives with one alone
    num_peers: ClassVar[int] = 1
    has_logits: ClassVar[bool] = True  # False: its steps have none, and branches, which read logits, are refused

    def __init__(self, config: Any, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.image_shape = image_shape
        self.num_classes = num_classes

    # --- construction -----------------------------------------------------------------------------------------

    def make_network(self) -> Network:
        """A freshly initialised network for one peer; initial values come from torch's global generator."""
        return ResNet18(self.config.network, self.image_shape, self.num_classes)

    def adapt(self, module: nn.Module) -> Network:
        """The same around a module that a person brought; a method with a network of its own may have none."""
        return Adapted(module, self.image_shape, self.num_classes)

    def values(self) -> dict[str, tuple[int, ...]]:
        """What the memory keeps with each row beside image and label: names and shapes of float32 tensors."""
        return {}

    # --- one step ---------------------------------------------------------------------------------------------

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """On the host: decide what the step needs. None means: no step, only store the batch."""
        raise NotImplementedError

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Any:
        """On the device: the views that all peers share in this step."""
        raise NotImplementedError

    def losses(self, peer: Peer, views: Any, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """On the device: one peer's forward passes and loss terms."""
        raise NotImplementedError

    def couple(self, peers: list[Peer], views: Any, losses: list[Losses]) -> list[Losses]:
        """On the device: terms that need all peers at once (mutual distillation)."""
        return losses

    def gradients(self, peers: list[Peer], carries: list[Any]) -> None:
        """On the device, between backward pass and optimiser's step: change the ``grad`` of parameters in place."""

    def commit(self, carries: list[Any]) -> None:
        """On the device, after the optimiser's step: keep in buffers what the next step needs."""

    def keep(self, carries: list[Any]) -> dict[str, Tensor]:
        """On the device, at the end of a step: the ``values`` of the stream batch, (B, *shape) by name."""
        return {}

    def end_task(self, peers: list[Peer]) -> None:
        """A task boundary, between two steps."""

    # --- prediction -------------------------------------------------------------------------------------------

    def ask(self, peers: list[Peer], memory: ReplayMemory, generator: torch.Generator) -> list[Peer]:
        """When asked to predict: the peers that do so. ``peers`` and ``memory`` stay as they are."""
        return peers

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 images -> what the network takes."""
        return to_float(images)

    def reference(self, features: list[Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
        """What the whole memory, un-augmented, gives for nearest-mean scores; ``features``: (N, F) of each peer.

        Returns class means (num_classes, F) of the peers' averaged features, and which classes are present.
        """
        return nearest_centroid(_mean(features), labels, self.num_classes)

    def scores(self, outputs: list[Output], reference: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """Named score tables (B, num_classes) from one forward pass of each peer; ``primary`` is one of them."""
        tables = {"head": _mean([out.logits for out in outputs])}
        if reference is not None:
            tables["ncm"] = ncm_scores(_mean([out.features for out in outputs]), *reference)
        return tables


def _mean(tensors: list[Tensor]) -> Tensor:
    return torch.stack([t.float() for t in tensors]).mean(0)


methods: Registry[Method] = Registry("method")
