"""DER++: DER, and the labels of a second draw from memory.

    L = CE(g(A x), y) + a mean((g(A m) - z_m)^2) + b CE(g(A m'), y_m')

m and m' are drawn independently. One pass over [m'; x; m]. The first batch of a run is learned by its cross-entropy
alone. A branch sees what both cross-entropies saw, [m'; x].
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.methods.base import methods
from s6mod.methods.der import DER, DERConfig, Views


class DERPPConfig(DERConfig):
    """Options of DER++."""

    name: Literal["der++"] = "der++"  # type: ignore[assignment]
    label_weight: float = Field(0.5, ge=0, description="b of the cross-entropy of the second draw from memory")


@methods.register("der++")
class DERPP(DER):
    """Dark experience replay with labels."""

    config_class = DERPPConfig  # type: ignore[assignment]  # another name
    config: DERPPConfig
    parts = ("labels", "stream", "logits")

    def terms(self, logits: Tensor, z: Tensor | None, views: Views) -> dict[str, Tensor]:
        """DER's, and the cross-entropy of the second draw."""
        terms, m = super().terms(logits, z, views), views.parts.get("labels")
        if m is not None:
            terms["memory"] = self.config.label_weight * F.cross_entropy(logits[m], views.labels[m])
        return terms
