"""DER: dark experience replay, which holds the network to what it said of a sample when the sample was stored.

    L = CE(g(A x), y) + a mean((g(A m) - z_m)^2)

z_m are the logits of m in the step that stored it: those of its augmented view, over all classes, before the
optimiser's step. Images are stored un-augmented, and augmented anew when they are replayed. Two passes, the stream's
first. Every stored row has logits: the first batch of a run, with nothing to replay, is learned by its cross-entropy
alone. A branch sees what the cross-entropy saw, the stream. Boundaries mean nothing to it.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Tap, Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod
from s6mod.networks import Output


class DERConfig(ReplayConfig):
    """Options of DER."""

    name: Literal["der"] = "der"
    logit_weight: float = Field(0.1, ge=0, description="a of the squared distance to the stored logits")


@dataclass(frozen=True)
class View:
    """What goes through the network in one pass."""

    images: Tensor  # (N, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    labels: Tensor  # (N,)
    rows: Tensor | None = None  # (N,) of the memory; None: these come from the stream


@methods.register("der")
class DER(ReplayMethod):
    """Dark experience replay."""

    config_class = DERConfig
    config: DERConfig
    draws: ClassVar[tuple[str, ...]] = ("logits",)  # from memory, by what they are compared with

    def values(self) -> dict[str, tuple[int, ...]]:
        """z, the logits of each stored sample."""
        return {"logits": (self.num_classes,)}

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Rows to replay; there are none for the first batch, which has a path of its own."""
        if len(memory) == 0:
            return Plan({}, path=("first batch",))
        return Plan({name: memory.sample(self.config.memory_batch, generator) for name in self.draws}, path=("replay",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> dict[str, View]:
        """The stream and each draw from memory, all augmented at once."""
        batches = {"stream": stream} | {name: Batch(*memory.gather(rows)) for name, rows in plan.rows.items()}
        view = self.augment(torch.cat([batch.images for batch in batches.values()]), generator)
        parts = view.split([len(batch.labels) for batch in batches.values()])
        return {
            name: View(batch.images, part, batch.labels, plan.rows.get(name))
            for (name, batch), part in zip(batches.items(), parts, strict=True)
        }

    def losses(self, peer: Peer, views: dict[str, View], memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """A pass for the stream and one for the memory; the stream's logits are carried to be stored."""
        out, tap = self.look(peer, views["stream"], generator)
        terms = {"stream": F.cross_entropy(out.logits.float(), views["stream"].labels)}
        if "logits" in views:
            m = views["logits"]
            distance = F.mse_loss(peer.network(m.view).logits.float(), memory.values["logits"][m.rows])
            terms["logits"] = self.config.logit_weight * distance
        return Losses(terms, tap, carry=out.logits.detach().float())

    def look(self, peer: Peer, part: View, generator: torch.Generator) -> tuple[Output, Tap]:
        """A pass whose output a cross-entropy sees."""
        return peer.look(part.view, Targets(part.labels), lambda: self.augment(part.images, generator))

    def keep(self, carries: list[Tensor]) -> dict[str, Tensor]:
        """The stream's logits as this step saw them."""
        return {"logits": carries[0]}
