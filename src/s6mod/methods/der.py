"""DER: dark experience replay, which holds the network to what it said of a sample when the sample was stored.

    L = CE(g(A x), y) + a mean((g(A m) - z_m)^2)

z_m are the logits of m in the step that stored it: those of its augmented view, over all classes, before the
optimiser's step. Images are stored un-augmented, and augmented anew when they are replayed. One pass over [x; m], so
that BatchNorm normalises alike what is stored and what is replayed. Every stored row has logits: the first batch of a
run, with nothing to replay, is learned by its cross-entropy alone. A branch sees what the cross-entropy saw, the
stream. Boundaries mean nothing to it.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.base import Seen, Tap, Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Peer, Plan, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod


class DERConfig(ReplayConfig):
    """Options of DER."""

    name: Literal["der"] = "der"
    logit_weight: float = Field(0.1, ge=0, description="a of the squared distance to the stored logits")


@dataclass(frozen=True)
class Views:
    """What goes through the network, one part after the other."""

    images: Tensor  # (N, C, H, W) uint8, un-augmented
    view: Tensor  # the same as floats, augmented
    labels: Tensor  # (N,)
    parts: dict[str, slice]  # where each part is, by name
    rows: Tensor | None  # of the memory, for the part that is compared with stored logits


@methods.register("der")
class DER(ReplayMethod):
    """Dark experience replay."""

    config_class = DERConfig
    config: DERConfig
    parts: ClassVar[tuple[str, ...]] = ("stream", "logits")  # of a pass; those that a cross-entropy sees come first

    def values(self) -> dict[str, tuple[int, ...]]:
        """z, the logits of each stored sample."""
        return {"logits": (self.num_classes,)}

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan:
        """Rows to replay; there are none for the first batch, which has a path of its own."""
        if len(memory) == 0:
            return Plan({}, path=("first batch",))
        draws = [name for name in self.parts if name != "stream"]
        return Plan({name: memory.sample(self.config.memory_batch, generator) for name in draws}, path=("replay",))

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The stream and each draw from memory, all augmented at once."""
        found = {"stream": stream} | {name: Batch(*memory.gather(rows)) for name, rows in plan.rows.items()}
        batches = {name: found[name] for name in self.parts if name in found}
        images = torch.cat([batch.images for batch in batches.values()])
        labels = torch.cat([batch.labels for batch in batches.values()])
        ends = accumulate((len(batch.labels) for batch in batches.values()), initial=0)
        parts = dict(zip(batches, starmap(slice, pairwise(ends)), strict=True))
        return Views(images, self.augment(images, generator), labels, parts, plan.rows.get("logits"))

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One pass; the stream's logits are carried to be stored."""
        out, tap = peer.look(views.view, Targets(views.labels), lambda: self.augment(views.images, generator))
        logits, x = out.logits.float(), views.parts["stream"]
        z = None if views.rows is None else self.stored(memory, views.rows, peer)
        return Losses(self.terms(logits, z, views), first(tap, x.stop), carry=logits[x].detach())

    def stored(self, memory: ReplayMemory, rows: Tensor, peer: Peer) -> Tensor:
        """z (K, num_classes) of a peer's network."""
        return memory.values["logits"][rows]

    def terms(self, logits: Tensor, z: Tensor | None, views: Views) -> dict[str, Tensor]:
        """The weighted terms, of the logits (N, num_classes) of all parts."""
        x = views.parts["stream"]
        terms = {"stream": F.cross_entropy(logits[x], views.labels[x])}
        if z is not None:
            terms["logits"] = self.config.logit_weight * _distance(logits[views.parts["logits"]], z)
        return terms

    def keep(self, carries: list[Tensor]) -> dict[str, Tensor]:
        """The stream's logits as this step saw them."""
        return {"logits": carries[0]}


def _distance(logits: Tensor, z: Tensor) -> Tensor:
    """The mean squared difference over the outputs that there were when z was stored: the others of z are -inf."""
    known = z.isfinite()
    return F.mse_loss(logits, torch.where(known, z, logits.detach())) / known.float().mean()


def first(tap: Tap, count: int) -> Tap:
    """What a tap of ``peer.look`` has of its first samples."""
    assert tap.fresh is not None
    labels, fresh, seen = Targets(tap.targets.labels[:count]), tap.fresh, tap.seen
    return Tap(
        tap.feature_map[:count],
        tap.logits[:count],
        labels,
        lambda: tap.again()[:count],
        seen and (lambda: Seen(seen().view[:count], seen().logits[:count])),
        lambda: fresh()[:count],
    )
