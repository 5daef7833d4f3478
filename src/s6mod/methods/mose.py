"""MOSE: four experts at the stages of one network, the deepest of which learns from the others.

    L = sum_{i=0..3} (SCL_i + CE_i) + sum_{i=0..2} || n(W f_3) - n(sg f_i) ||_F

One pass sees two sets. `new`: the stream batch and images of its task from memory. `cat`, from the second task on:
stream images and images of earlier tasks. CE_i is twice that of `cat` over all classes plus that of `new` over the
classes of the task alone. The nearest class mean predicts: by the deepest expert's features (the table `ncm`, MOSE)
or by those of all (`moe`, MOE-MOSE). The first batch of a run is only stored.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import TransformLayers, TransformLayersConfig, augmentation
from s6mod.branch.base import Seen, Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, OptimizerConfig, Peer, Plan, Task, methods
from s6mod.methods.expert_losses import cross_entropy, distillation, supervised_contrastive
from s6mod.methods.normalised import NormalisedConfig, NormalisedMethod
from s6mod.metrics import ncm_scores, nearest_centroid
from s6mod.networks import DEEPEST, ExpertsConfig, ExpertsOutput, ExpertsResNet18

PER_CLASS = 7  # images of earlier tasks in a step, at most this many for each class seen
CAT_WEIGHT = 2.0  # of the cross-entropy of `cat`


class MOSEAugmentConfig(TransformLayersConfig):
    """Greyscale and crop; every image comes with its mirror anyway."""

    flip_probability: float = Field(0.0, ge=0, le=1, description="chance that an image is mirrored once more")


class MOSEOptimizerConfig(OptimizerConfig):
    """Adam, whose decay is added to the gradient."""

    name: Literal["adamw", "adam", "sgd"] = Field(
        "adam", description="adamw decouples the decay, adam and sgd add it to the gradient"
    )
    lr: float = Field(1e-3, gt=0, description="learning rate")


class MOSEConfig(NormalisedConfig):
    """Options of MOSE."""

    name: Literal["mose"] = "mose"
    network: ExpertsConfig = ExpertsConfig()
    optimizer: MOSEOptimizerConfig = MOSEOptimizerConfig()
    augment: MOSEAugmentConfig | None = MOSEAugmentConfig()
    temperature: float = Field(0.07, gt=0, description="of the supervised contrastive loss")


@dataclass(frozen=True)
class Views:
    """Both sets, `new` before `cat`."""

    images: Tensor  # (N + M, 3, H, W) normalised, un-augmented
    split: int  # N: how many of them are `new`
    view: Tensor  # (4 N + 4 M, 3, H, W)
    targets: Targets
    classes: Tensor  # (num_classes,) 1 for those that `new` chooses among, else 0


@methods.register("mose")
class MOSE(NormalisedMethod):
    """Mixture of stage experts; MOE-MOSE is the same with another table for predictions."""

    config_class = MOSEConfig
    config: MOSEConfig
    needs_boundaries = True
    reservoir = "batched"
    primary = "ncm"
    memory_free = frozenset({"head", "heads"})
    memory_bound = frozenset({"ncm", "moe"})

    def __init__(self, config: MOSEConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        self.augment = augmentation(TransformLayers, config.augment)

    def make_network(self) -> ExpertsResNet18:
        """A network with an expert at each stage."""
        return ExpertsResNet18(self.config.network, self.image_shape, self.num_classes)

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> Plan | None:
        """Rows of memory for both sets, of the stream for `cat`, and the classes that `new` chooses among.

        In the first task `cat` is empty, and `new` chooses among all classes.
        """
        if len(memory) == 0:
            return None
        first_task, batch, tasks = task.index == 0, len(labels), memory.tasks[: len(memory)]
        K = self.config.memory_batch
        current = (tasks == task.index).nonzero().flatten()
        if len(current) == 1:
            current = current[:0]  # a lone sample is ignored, as in the published results
        repeated = 0 if first_task else min(K * len(task.current) // len(task.seen), batch)
        earlier = min(K - repeated, PER_CLASS * len(task.seen))
        classes = torch.full((self.num_classes,), int(first_task))
        classes[task.current] = 1
        return Plan(
            {
                "new": memory.sample(K if first_task else max(K // 2 - batch, 0), generator, among=current),
                "repeated": torch.arange(repeated),
                "cat": memory.sample(earlier, generator, among=(tasks < task.index).nonzero().flatten()),
                "classes": classes,
            }
        )

    def draw(self, stream: Batch, plan: Plan, memory: ReplayMemory, generator: torch.Generator) -> Views:
        """The two sets; stream images in both get views of their own in each."""
        (new, new_labels), (cat, cat_labels) = (memory.gather(plan.rows[name]) for name in ("new", "cat"))
        repeated = plan.rows["repeated"]
        images = self.prepare(torch.cat([stream.images, new, stream.images[repeated], cat]))
        split = len(stream.images) + len(new)
        new_labels = torch.cat([stream.labels, new_labels]).repeat(4)
        cat_labels = torch.cat([stream.labels[repeated], cat_labels]).repeat(4)
        targets = Targets(torch.cat([new_labels, cat_labels]))
        return Views(images, split, self._view(images, split, generator), targets, plan.rows["classes"])

    def _view(self, images: Tensor, split: int, generator: torch.Generator) -> Tensor:
        """Of each set [images ; mirrors ; augmented images ; augmented mirrors]."""
        plain = torch.cat([part for s in (images[:split], images[split:]) for part in (s, s.flip(3))])
        augmented = self.augment(plain, generator)
        s = 2 * split
        return torch.cat([plain[:s], augmented[:s], plain[s:], augmented[s:]])

    def losses(self, peer: Peer, views: Views, memory: ReplayMemory, generator: torch.Generator) -> Losses:
        """One forward pass; each term is summed over the experts."""
        out: ExpertsOutput = peer.network(views.view)
        logits, labels, split = out.expert_logits.float(), views.targets.labels, 4 * views.split
        new = logits[:split].masked_fill(views.classes == 0, -torch.inf)
        ce_new, ce_cat = cross_entropy(new, labels[:split]), cross_entropy(logits[split:], labels[split:])
        terms = {
            "ce": ce_new + CAT_WEIGHT * ce_cat,
            "scl": supervised_contrastive(out.projections, labels, self.config.temperature),
            "distil": distillation(out.student, out.features[:, :DEEPEST]),
        }
        tap = peer.tap(out, views.targets, lambda: self._view(views.images, views.split, generator))
        return Losses(terms, replace(tap, seen=lambda: Seen.both(views.view, out.heads, split)))

    def reference(self, features: list[Tensor], labels: Tensor) -> tuple[Tensor, Tensor]:
        """Unit class means (num_classes, 4, F) of the experts' unit features, and which classes are present.

        A class that was seen but has no image left is not present. The published results give it a random direction
        instead, which is as good as never the nearest: features are not negative, so their means lie close together.
        """
        unit = F.normalize(features[0], dim=2)  # (N, 4, F)
        means, present = nearest_centroid(unit.flatten(1), labels, self.num_classes)
        return F.normalize(means.unflatten(1, unit.shape[1:]), dim=2), present

    def scores(self, outputs: list[Any], reference: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
        """The deepest expert's head and the mean of all heads; its class means (MOSE) and those of all (MOE-MOSE)."""
        out: ExpertsOutput = outputs[0]
        tables = {"head": out.logits.float(), "heads": out.expert_logits.float().mean(1)}
        if reference is not None:
            means, present = reference
            unit = F.normalize(out.features, dim=2)
            tables["ncm"] = ncm_scores(unit[:, DEEPEST], means[:, DEEPEST], present)
            # Squared distances add up over the experts: the mean of four is a quarter of that of all in one vector.
            tables["moe"] = ncm_scores(unit.flatten(1), means.flatten(1), present) / unit.shape[1]
        return tables
