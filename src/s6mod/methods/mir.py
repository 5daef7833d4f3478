"""MIR: maximally interfered retrieval. Replayed is what the coming step would harm most.

    w' = w - lr * gradient of CE(g(A x), y)              a virtual step of plain SGD
    m: the candidates whose loss rises most from w to w'
    L = CE(g(A[m; x]), [y_m; y])                         ER's, with w

The host draws the candidates, or all rows if there are not more; the device looks ahead and chooses. Candidates are
looked at un-augmented. The look-ahead runs in train mode, normalised by its own batches, on copies: neither parameters
nor BatchNorm's averages are touched. It knows no branch, which sees what ER's would. With no more candidates than are
replayed there is nothing to choose and no look-ahead. The first batch of a run is only stored.
"""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from s6mod.branch.base import Targets
from s6mod.errors import ConfigError
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod
from s6mod.networks import Network
from s6mod.precision import full_precision


class MIRConfig(ReplayConfig):
    """Options of MIR."""

    name: Literal["mir"] = "mir"
    candidates: int = Field(128, ge=1, description="rows of the memory among which those to replay are chosen")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.candidates < self.memory_batch:
            raise ValueError(
                f"expected at least as many candidates as are replayed ({self.memory_batch}), got {self.candidates}; "
                "raise candidates or lower memory_batch"
            )
        return self


@dataclass(frozen=True)
class Views:
    """The stream, and what may be replayed."""

    stream: Batch
    view: Tensor  # (B, C, H, W) floats, the stream augmented
    candidates: Batch
    choose: bool  # whether there are more than are replayed


@methods.register("mir")
class MIR(ReplayMethod):
    """Maximally interfered retrieval."""

    config_class = MIRConfig
    config: MIRConfig

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Candidates for replay; the path tells whether there is something to choose."""
        if memory.size <= self.config.memory_batch:
            raise ConfigError(
                f"expected a memory of more images than MIR replays ({self.config.memory_batch}), to choose among, "
                f"got memory_size={memory.size}; raise it or lower memory_batch"
            )
        if len(memory) == 0:
            return None
        rows = memory.sample(self.config.candidates, generator)
        return Plan({"candidates": rows}, path=("choose" if len(rows) > self.config.memory_batch else "all",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The stream, augmented once, and the candidates as they are."""
        candidates = Batch(*memory.gather(plan.rows["candidates"]))
        return Views(stream, self.augment(stream.images, generator), candidates, plan.path == ("choose",))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """Look ahead and choose; then ER's pass and cross-entropy."""
        x, m = views.stream, views.candidates
        if views.choose:
            rise = self.rise(peer.network, views)
            chosen = rise.topk(self.config.memory_batch).indices
            m = Batch(m.images[chosen], m.labels[chosen])
        images, targets = torch.cat([m.images, x.images]), Targets(torch.cat([m.labels, x.labels]))
        view = torch.cat([self.augment(m.images, generator), views.view])
        out, tap = peer.look(view, targets, lambda: self.augment(images, generator))
        return Losses({"ce": F.cross_entropy(out.logits.float(), targets.labels)}, tap)

    def rise(self, network: Network, views: Views) -> Tensor:
        """How much the loss of each candidate (N,) rises by a virtual step on the stream."""
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        x = functional_call(network, buffers, (views.view,))
        w = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
        g = gradient(F.cross_entropy(x.logits.float(), views.stream.labels), list(w.values()))
        images, labels = self.prepare(views.candidates.images), views.candidates.labels
        with torch.no_grad():
            moved = torch._foreach_add(list(w.values()), g, alpha=-self.config.optimizer.lr)
            ahead = dict(zip(w, moved, strict=True))
            before, after = (
                F.cross_entropy(functional_call(network, given, (images,)).logits.float(), labels, reduction="none")
                for given in (buffers, buffers | ahead)
            )
            return after - before


@full_precision
def gradient(loss: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
    """Of each parameter; zeros where the loss does not depend on it."""
    return torch.autograd.grad(loss, parameters, materialize_grads=True)
