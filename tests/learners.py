"""Small learners, and what they are given."""

from typing import Any, NamedTuple

import torch

from s6mod import Learner
from s6mod.branch.base import Tap
from s6mod.engine.step import Inputs
from s6mod.methods import Batch, Plan, methods
from s6mod.methods.ccldc import CCLDC

METHODS = sorted(methods.registered(outside=False))
# For what a pair of networks takes over from its method: one pair says it for all.
ONE_PAIR = [name for name in METHODS if name == "er-ccldc" or not issubclass(methods[name], CCLDC)]
STREAM, MEMORY = 2, 3  # images of a step
TASK = 2  # steps of a task


def batch(position, classes, size=STREAM, side=8):
    random = torch.Generator().manual_seed(position)
    labels = torch.tensor(classes)[torch.arange(size) % len(classes)]
    return torch.randint(256, (size, 3, side, side), generator=random, dtype=torch.uint8), labels


def small(name, branch=None, method=None, **options):
    options = {"num_classes": 6, "memory_size": 12, "seed": 3, "predict_among": "all"} | options
    if branch and branch["name"] == "s6mod":
        branch = {"d_inner": 8, "num_patterns": 3, "state_dim": 4, "dt_rank": 3} | branch
    contrastive = {"projection_width": 8} if name.startswith(("ocm", "onpro")) else {}
    quick = {"passes": 2} if name == "gdumb" else {}
    method = {"network": {"width": 2}, "memory_batch": MEMORY} | contrastive | quick | (method or {})
    return Learner({"name": name, **method}, branch, **options)


def run(learner, start, stop, side=8):
    """Tasks of two steps and two new classes each, the boundary after the second step."""
    for position in range(start, stop):
        task = position // TASK
        learner.learn(*batch(position, (2 * task, 2 * task + 1), side=side))
        if position % TASK == TASK - 1:
            learner.end_task()
    return learner


class Untaken(NamedTuple):
    """What a step would compute that is not taken."""

    plan: Plan
    terms: dict[str, torch.Tensor]
    tap: Tap
    inputs: list[torch.Tensor]  # of each pass of the network, in order
    outputs: list[Any]


def untaken(learner, images, labels):
    """The next step of a learner with one network; its own draws go on, and nothing else changes but BatchNorm."""
    (peer,), passes = learner.peers, []
    hook = peer.network.register_forward_hook(lambda _, args, out: passes.append((args[0], out)))
    task = learner.task.with_classes(labels)
    plan = learner.method.plan(labels, learner.memory, task, learner.host_generator)
    slots = torch.full((len(labels),), learner.memory.size)
    terms, (losses,) = learner.step.losses(Inputs(Batch(images, labels), plan, slots))
    hook.remove()
    inputs, outputs = zip(*passes, strict=True)
    return Untaken(plan, terms, losses.tap, list(inputs), list(outputs))
