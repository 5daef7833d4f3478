"""How much accuracy depends on the step it is taken at: python benchmarks/evaluation_jitter.py DATA_ROOT [CELL] --help.

A learner takes the first tasks of CIFAR-100 as a run of that cell and seed does: with all ten it ends as the run ends.
After each of the last 20 steps it is scored on test images of the classes seen, by each of its score tables: with the
running statistics of its BatchNorm layers, which are those of about the last ten batches; with statistics of the whole
memory, as ``statistics: memory`` has them; and with those of the memory augmented as in training. The trajectory is the
same for all. One line of JSON for each seed, then the means.
"""

import argparse
import json
from statistics import fmean, stdev

import torch

from s6mod import Learner
from s6mod.config import merge
from s6mod.data import load
from s6mod.data.streams import make_plan
from s6mod.engine.evaluate import Predictor
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig

STEPS = 20  # the last ones
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
    config = RunConfig.parse(merge(parse(options.cell).values(), {"seed": seed}))
    learner = Learner.from_config(config.learner_config(data))
    plan = make_plan(data.train_labels, data.num_classes, config.stream, seed)
    seen = [c for classes in plan.task_classes[: options.tasks] for c in classes]
    tests = torch.cat([(data.test_labels == c).nonzero()[: options.images, 0] for c in seen])
    images, labels = (part[tests].to(learner.engine.device) for part in (data.test_images, data.test_labels))
    batches = [batch for batch in plan.batches() if batch.task < options.tasks]
    found = {}
    for position, ids, _, is_last in batches:
        learner.learn(data.train_images[ids], data.train_labels[ids])
        if is_last:
            learner.end_task()
        if position >= len(batches) - STEPS:
            for name, accuracy in accuracies(learner, images, labels).items():
                found.setdefault(name, []).append(accuracy)
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
