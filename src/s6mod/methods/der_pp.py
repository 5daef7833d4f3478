"""DER++: DER, and the labels of a second draw from memory.

    L = CE(g(A x), y) + a mean((g(A m) - z_m)^2) + b CE(g(A m'), y_m')

m and m' are drawn independently. Three passes: stream, m, m'. The first batch of a run is learned by its cross-entropy
alone. A branch sees what both cross-entropies saw, joined as [m'; x].
"""

from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from s6mod.branch.base import Tap, Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Losses, Peer, methods
from s6mod.methods.der import DER, DERConfig, View


class DERPPConfig(DERConfig):
    """Options of DER++."""

    name: Literal["der++"] = "der++"  # type: ignore[assignment]
    label_weight: float = Field(0.5, ge=0, description="b of the cross-entropy of the second draw from memory")


@methods.register("der++")
class DERPP(DER):
    """Dark experience replay with labels."""

    config_class = DERPPConfig  # type: ignore[assignment]  # another name
    config: DERPPConfig
    draws = ("logits", "labels")

    def losses(self, peer: Peer, views: dict[str, View], memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """DER's passes and terms, and a pass and a cross-entropy for the second draw."""
        der = super().losses(peer, views, memory, generator)
        if "labels" not in views:
            return der
        m = views["labels"]
        out, tap = self.look(peer, m, generator)
        memory_term = self.config.label_weight * F.cross_entropy(out.logits.float(), m.labels)
        return Losses({**der.terms, "memory": memory_term}, joined(tap, der.tap), der.carry)


def joined(first: Tap, second: Tap) -> Tap:
    """Two taps of one network as one; both come from ``peer.look``."""
    return Tap(
        torch.cat([first.feature_map, second.feature_map]),
        torch.cat([first.logits, second.logits]),
        Targets(torch.cat([first.targets.labels, second.targets.labels])),
        lambda: torch.cat([first.again(), second.again()]),
        torch.cat([each.seen for each in (first, second) if each.seen is not None]),
        lambda: torch.cat([each.fresh() for each in (first, second) if each.fresh is not None]),
    )
