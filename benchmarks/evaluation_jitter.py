"""How much accuracy depends on the step it is taken at: python benchmarks/evaluation_jitter.py DATA_ROOT [CELL] --help.

A learner takes tasks of CIFAR-100, ten classes each. After each of the last 20 steps it is scored on test images of the
classes seen, by each of its score tables: with the running statistics of its BatchNorm layers, which are those of about
the last ten batches; with statistics of the whole memory, as ``statistics: memory`` has them; and with those of the
memory augmented as in training. The trajectory is the same for all. One line of JSON for each seed, then the means.
"""

import argparse
import json
from statistics import fmean, stdev

import torch

from s6mod import Learner
from s6mod.data import load
from s6mod.engine.evaluate import Predictor
from s6mod.experiments.cells import parse
from s6mod.learner_config import LearnerConfig

CLASSES, STEPS = 10, 20  # classes of a task, last steps
NARROW = "er/cifar100/1000/method.network.width=16"  # enough for a CPU


class Augmented(Predictor):
    """Takes the statistics of a view of the memory, drawn anew at each step."""

    def _calibrated(self, peers):
        prepare, random = self.method.prepare, torch.Generator(self.engine.device).manual_seed(0)
        self.method.prepare = lambda images: self.method.augment(prepare(images), random)
        try:
            return super()._calibrated(peers)
        finally:
            del self.method.prepare


def accuracies(learner, images, labels):
    """In percent, by table and statistics."""
    found = {}
    ways = {"running": (Predictor, "running"), "memory": (Predictor, "memory"), "augmented": (Augmented, "memory")}
    for way, (kind, statistics) in ways.items():
        predictor = kind(learner.method, learner.peers, learner.memory, learner.engine, statistics)
        for name, table in predictor(images).items():
            found[f"{name}, {way}"] = round(100 * (table.argmax(1) == labels).double().mean().item(), 2)
    return found


def trajectory(data, options, seed):
    """Accuracies at the last steps, by table and statistics."""
    values = {key: part for key, part in parse(options.cell).values().items() if key in LearnerConfig.model_fields}
    learner = Learner.from_config(LearnerConfig.parse(values | {"num_classes": 100, "seed": seed}))
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(100, generator=random)
    seen = order[: options.tasks * CLASSES]
    tests = torch.cat([(data.test_labels == c).nonzero()[: options.images, 0] for c in seen])
    images, labels = (part[tests].to(learner.engine.device) for part in (data.test_images, data.test_labels))
    found = {}
    for task in range(options.tasks):
        here = torch.isin(data.train_labels, order[task * CLASSES : (task + 1) * CLASSES]).nonzero()[:, 0]
        batches = here[torch.randperm(len(here), generator=random)].split(10)
        for step, batch in enumerate(batches):
            learner.learn(data.train_images[batch], data.train_labels[batch])
            if task == options.tasks - 1 and step >= len(batches) - STEPS:
                for name, accuracy in accuracies(learner, images, labels).items():
                    found.setdefault(name, []).append(accuracy)
        learner.end_task()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data_root")
    parser.add_argument("cell", nargs="?", default=NARROW)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--images", type=int, default=60, help="test images of a class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    data = load("cifar100", options.data_root)
    of_seeds = []
    for seed in options.seeds:
        of_seeds.append(trajectory(data, options, seed))
        print(json.dumps({"cell": options.cell, "seed": seed, "accuracy": of_seeds[-1]}), flush=True)
    for name in of_seeds[0]:
        mean, last, jitter = (fmean(of(found[name]) for found in of_seeds) for of in (fmean, lambda a: a[-1], stdev))
        print(f"{name:17} mean of the last {STEPS} steps {mean:.2f}, last {last:.2f}, std over steps {jitter:.2f}")


if __name__ == "__main__":
    main()
