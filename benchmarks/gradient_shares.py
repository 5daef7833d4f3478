"""How strongly each loss term of ER + S6MOD pulls on the backbone: gradient_shares.py DATA_ROOT [WIDTH]

Length of each term's gradient on an early and on the last convolution, and its cosine with that of the cross-entropy,
at a few steps of a CIFAR-100 stream (seed 0). Minutes on a CPU at width 32.
"""

import sys

import torch
from torch.nn import functional as F

from s6mod import Learner
from s6mod.data import load
from s6mod.data.streams import StreamConfig, make_plan
from s6mod.engine.step import Inputs
from s6mod.methods import Batch

AT = (12, 60, 120)


def main() -> None:
    data = load("cifar100", sys.argv[1])
    width = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    learner = Learner(
        {"name": "er", "network": {"width": width}},
        "s6mod",
        num_classes=100,
        memory_size=2000,
        engine={"device": "cpu"},
    )
    for position, ids, _, _ in make_plan(data.train_labels, 100, StreamConfig(tasks=10), seed=0).batches():
        x, y = data.train_images[ids], data.train_labels[ids]
        if position in AT:
            report(learner, position, x, y)
        if position == max(AT):
            break
        learner.learn(x, y)


def report(learner, position, x, y):
    plan = learner.method.plan(y, learner.memory, learner.task, learner.host_generator)
    terms, _ = learner.step.losses(Inputs(Batch(x, y), plan, slots=torch.full((len(y),), learner.memory.size)))
    stages = learner.peers[0].network.stages
    weights = [stages[0][0].conv1.weight, stages[3][1].conv2.weight]
    gradients = {name: torch.autograd.grad(term, weights, retain_graph=True) for name, term in terms.items()}
    for name, pair in gradients.items():
        lengths = ", ".join(f"{g.norm():.3f}" for g in pair)
        cosines = ", ".join(
            f"{F.cosine_similarity(g.flatten(), ce.flatten(), dim=0):.2f}"
            for g, ce in zip(pair, gradients["ce"], strict=True)
        )
        print(f"step {position:3d} {name:12s} length (early, last) {lengths}; cosine with ce {cosines}", flush=True)


if __name__ == "__main__":
    main()
