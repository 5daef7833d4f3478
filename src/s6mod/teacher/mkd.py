"""MKD: momentum knowledge distillation. An averaged copy of the network teaches it what it makes of a view.

    L_MKD = w / 2 (KL(g_T(A s), g(A s)) + KL(g_T(A s), g(s)))    KL of softmaxes at temperature T, times T^2
    w_T += r (w - w_T)                                            after each step, from w_T = w on

with w = 5.5, T = 4 and r = 0.01. s are the samples of the method's tap: [m; x] on ER. A s is a view that the method's
pass held, and so is s itself on methods that learn from both; otherwise s takes a pass of its own. Where the tap holds
no view, A s is a fresh one, and CE(g(A s)) is added. The KL of a network with several heads is the sum over them.
Options say which of both views the copy answers on and which the network learns on; w is of the mean over all KLs that
this makes. The mean of both networks' parameters predicts.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import unaugmented
from s6mod.branch.base import Seen, Tap
from s6mod.errors import InputError
from s6mod.networks import Network
from s6mod.precision import full_precision
from s6mod.teacher.base import Teacher, TeacherConfig, teachers


class MKDConfig(TeacherConfig):
    """Options of MKD."""

    name: Literal["mkd"] = "mkd"
    weight: float = Field(5.5, ge=0, description="w of the mean of both distillations; 0: the copy only follows")
    temperature: float = Field(4.0, gt=0, description="T, by which both networks' logits are divided")
    answers: Literal["augmented", "plain", "both"] = Field(
        "augmented", description="what the copy answers on: the augmented view, the samples as they are, or both"
    )
    unaugmented: bool = Field(
        True, description="whether the un-augmented samples are taught too; without, a step costs less"
    )


@teachers.register("mkd")
class MKD(Teacher):
    """Momentum knowledge distillation."""

    config_class = MKDConfig
    config: MKDConfig

    def losses(self, network: Network, copy: Network, tap: Tap) -> dict[str, Tensor]:
        """A pass of the copy, and of the network for what its own pass did not hold."""
        if self.config.weight == 0:  # no pass: what BatchNorm averages stays the method's
            return {}
        if tap.fresh is None:
            raise InputError(
                "expected a tap whose samples can be seen again for the teacher 'mkd', got one without; "
                "make it by peer.look or peer.tap"
            )
        terms: dict[str, Tensor] = {}
        if tap.seen is not None:
            seen = tap.seen()
        else:
            view = tap.fresh()
            seen = Seen(view, network(view).heads)
            terms["ce"] = F.cross_entropy(seen.logits.float(), tap.targets.soft(seen.logits.shape[1]))
        if seen.plain is None and (self.config.unaugmented or self.config.answers != "augmented"):
            with unaugmented():
                plain = tap.fresh()
        learned = [seen.logits]
        if self.config.unaugmented:
            learned.append(network(plain).heads if seen.plain is None else seen.plain[1])
        views = [seen.view] if self.config.answers != "plain" else []
        if self.config.answers != "augmented":
            views.append(plain if seen.plain is None else seen.plain[0])
        with torch.no_grad():
            taught = [copy(view).heads for view in views]
        distilled = [divergence(by, each, self.config.temperature) for by in taught for each in learned]
        return terms | {"kd": self.config.weight * torch.stack(distilled).mean()}


@full_precision
def divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T), softmax(student / T)) of logits (B, ..., C), mean over samples, sum over heads."""
    log_p, log_q = ((logits / temperature).log_softmax(-1) for logits in (teacher, student))
    return temperature**2 * F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
