"""Ideas that could make the branch add to its control, as a branch ``trial`` and a method ``er-views``.

They run like any other: python benchmarks/branch_trials.py train --branch trial --set branch.beta=0 --data cifar100
--memory 2000 --seeds 100-102. What came of them is in docs/laboratory/branch-on-cifar100.md. ``er-views`` is ER that
learns from two views of every image, the control for a branch that sees a second one.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from s6mod.branch import S6MOD, S6MODConfig, Targets, branches, losses
from s6mod.branch.controls import confidence
from s6mod.cli import main
from s6mod.methods import methods
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.expert_losses import supervised_contrastive
from s6mod.precision import full_precision


class TrialConfig(S6MODConfig):
    """S6MOD that may see the base pass and a fresh view at once (``view: both``), and more terms."""

    name: Literal["trial"] = "trial"
    view: Literal["shared", "fresh", "both"] = Field("both", description="maps the branch sees")
    q_scale: float = Field(1.0, gt=0, description="cosines are multiplied by it in the softmax of Q in L_Diff")
    penalty: float = Field(0.0, ge=0, description="weight of KL(P || uniform)")
    teach: float = Field(0.0, ge=0, description="weight of KL(Q || P), where the branch is right, Q a fixed target")
    scl: float = Field(0.0, ge=0, description="weight of the supervised contrastive loss on mu")
    etf_ce: float = Field(0.0, ge=0, description="weight of the cross-entropy of the ETF head")
    sharp: float = Field(10.0, gt=0, description="cosines are multiplied by it in teach and etf_ce")


@branches.register("trial")
class Trial(S6MOD):
    """S6MOD with the terms of ``TrialConfig``."""

    config_class = TrialConfig

    def __init__(self, channels, num_classes, map_size=4, **options):
        trial = TrialConfig.parse(options)
        known = {name: value for name, value in trial.plain().items() if name in S6MODConfig.model_fields}
        super().__init__(channels, num_classes, map_size, **known | {"name": "s6mod", "view": "shared"})
        self.trial = trial

    def losses(self, tap, generator=None):
        """The four terms, and those of the trial; P meets the Q of the last view."""
        trial = self.trial
        maps = ([] if trial.view == "fresh" else [tap.feature_map]) + ([] if trial.view == "shared" else [tap.again()])
        return self.terms(torch.cat(maps), tap.logits, tap.targets.labels.repeat(len(maps)), generator)

    @full_precision
    def terms(self, feature_map, logits, labels, generator):
        """Of all views one after the other."""
        trial, B = self.trial, len(logits)
        q = Targets(labels).soft(self.num_classes)
        X_hat, Z, prototype_feature = self._paths(feature_map)
        self.routing.update(prototype_feature, q)
        count = self.routing.count_for_targets(q)
        gate_logits, weights = self.gate(X_hat, count, self.training, generator)
        mu, delta = self._select(X_hat, Z, weights)
        cosines = self.etf(mu)
        self._note(count, weights)
        seen = cosines[-B:]
        terms = {
            "dr": trial.weight_dr * losses.dot_regression(cosines, q),
            "diff": trial.alpha * losses.divergence(logits, trial.q_scale * seen, trial.divergence),
            "cont": trial.beta * losses.contrastive_discretization(delta, q),
            "z": trial.weight_z * losses.z_loss(gate_logits),
        }
        if trial.penalty:
            terms["penalty"] = trial.penalty * confidence(logits)
        if trial.teach:
            log_q = (trial.sharp * seen.detach()).log_softmax(1)
            right = (seen.argmax(1) == labels[-B:]).float()
            divergence = F.kl_div(logits.log_softmax(1), log_q, reduction="none", log_target=True).sum(1)
            terms["teach"] = trial.teach * (right * divergence).mean()
        if trial.scl:
            terms["scl"] = trial.scl * supervised_contrastive(mu[:, None], labels, 0.1)
        if trial.etf_ce:
            terms["etf_ce"] = trial.etf_ce * F.cross_entropy(trial.sharp * cosines, labels)
        return terms


class ERViewsConfig(ERConfig):
    """Options of ER on two views."""

    name: Literal["er-views"] = "er-views"


@methods.register("er-views")
class ERViews(ER):
    """ER whose batch holds two views of every image."""

    config_class = ERViewsConfig
    chain = None

    def draw(self, stream, plan, memory, generator):
        """[memory ; stream] twice, each time augmented anew."""
        views = super().draw(stream, plan, memory, generator)
        images, labels = views.images.repeat(2, 1, 1, 1), views.targets.labels.repeat(2)
        second = self.augment(views.images, generator)
        return replace(views, images=images, view=torch.cat([views.view, second]), targets=Targets(labels))


if __name__ == "__main__":
    main()
