"""How much accuracy depends on the step it is taken at: python benchmarks/evaluation_jitter.py DATA_ROOT [BRANCH].

ER, narrow enough for a CPU, learns the first two tasks of CIFAR-100. After each of the last 20 steps it is scored on
test images of the classes seen: with the running statistics of its BatchNorm layers, which are those of about the last
ten batches, and with statistics taken anew from the whole memory, augmented as in training or as it is.
"""

import sys
from copy import deepcopy
from statistics import mean, stdev

import torch
from torch import nn

from s6mod import Learner
from s6mod.data import load

TASKS, CLASSES, STEPS, IMAGES = 2, 10, 20, 60  # tasks, classes of each, last steps, test images of a class


def accuracies(learner, images, labels):
    learner._predictor = None  # its class means are those of other statistics
    return {
        name: 100 * (table.argmax(1) == labels).float().mean().item() for name, table in learner.scores(images).items()
    }


def recalibrate(learner, augmented):
    """Statistics of BatchNorm from one pass over the memory, each batch weighing the same."""
    network, method, memory = learner.peers[0].network, learner.method, learner.memory
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    momentum = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in memory.images[: len(memory)].split(250):
            pixels = method.prepare(part)
            network(method.augment(pixels, random) if augmented else pixels)
    for layer, value in zip(layers, momentum, strict=True):
        layer.momentum = value


def main():
    data = load("cifar100", sys.argv[1])
    branch = {"name": sys.argv[2]} if len(sys.argv) > 2 else None
    learner = Learner({"name": "er", "network": {"width": 16}}, branch, num_classes=100, memory_size=1000)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(100, generator=random)
    tests = torch.cat([(data.test_labels == c).nonzero()[:IMAGES, 0] for c in order[: TASKS * CLASSES]])
    images, labels = data.test_images[tests], data.test_labels[tests]
    found = {}
    for task in range(TASKS):
        here = torch.isin(data.train_labels, order[task * CLASSES : (task + 1) * CLASSES]).nonzero()[:, 0]
        batches = here[torch.randperm(len(here), generator=random)].split(10)
        for step, batch in enumerate(batches):
            learner.learn(data.train_images[batch], data.train_labels[batch])
            if task == TASKS - 1 and step >= len(batches) - STEPS:
                network = learner.peers[0].network
                kept = deepcopy(network.state_dict())
                for statistics in ("running", "memory, augmented", "memory as it is"):
                    if statistics != "running":
                        recalibrate(learner, augmented=statistics == "memory, augmented")
                    for table, accuracy in accuracies(learner, images, labels).items():
                        found.setdefault((table, statistics), []).append(accuracy)
                    network.load_state_dict(kept)
        learner.end_task()
    for (table, statistics), values in sorted(found.items()):
        spread = f"std {stdev(values):.2f} from {min(values):.2f} to {max(values):.2f}"
        print(f"{table:7} {statistics:18} mean {mean(values):.2f} {spread}")


if __name__ == "__main__":
    main()
