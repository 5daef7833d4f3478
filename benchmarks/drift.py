"""Boundaries that nobody tells: python benchmarks/drift.py STREAM SEEDS

Two streams of digits that change without notice. ``classes``: two digits, then two others, five times. ``looks``: all
ten digits, then all ten in another look (inverted, turned, both), four times, so that no class is new. ER-LwF, which
distils from the network of the last boundary, is told each change, assumes one when a class is new, looks for a rise of
its errors (ADWIN), or passes none. Prints JSON for each learner and seed: the changes that it found within ten
batches, how late, what it took for one that was none, and its accuracy on held-out images of all looks at the end.
"""

import json
import sys

import numpy as np
import torch

from defaults import BATCH, digits, stream
from s6mod import Learner

SOON = 10  # batches after a change within which a boundary is said to have found it
METHOD = {"name": "er-lwf", "network": {"width": 8}, "augment": "light", "optimizer": {"lr": 0.001}}
KINDS = {
    "given": {"boundaries": "given"},
    "on_new_class": {"boundaries": "on_new_class", "boundary_patience": 5},
    "drift": {"boundaries": "drift"},
    "never": {"boundaries": "given"},  # and nobody tells
}


LOOKS = [lambda x: x, lambda x: 255 - x, lambda x: np.rot90(x, axes=(2, 3)), lambda x: 255 - np.rot90(x, axes=(2, 3))]


def tasks_of(name, rng):
    """Tasks, as images and labels, and held-out images and labels."""
    x, y, held_x, held_y = digits(rng, False)
    if name == "classes":
        return [(x[ids], y[ids]) for ids in stream(y, rng)], held_x, held_y
    parts = np.array_split(rng.permutation(len(y)), len(LOOKS))
    tasks = [(look(x[ids]), y[ids]) for look, ids in zip(LOOKS, parts, strict=True)]
    return tasks, np.concatenate([look(held_x) for look in LOOKS]), np.tile(held_y, len(LOOKS))


def measure(name, kind, seed):
    tasks, held_x, held_y = tasks_of(name, np.random.default_rng(seed))
    learner = Learner(METHOD, memory_size=500, seed=seed, updates=3, statistics="memory", **KINDS[kind])
    changes, passed = [], []
    for x, y in tasks:
        changes.append(learner.steps)
        for start in range(0, len(y), BATCH):
            index = learner.task.index
            learner.learn(np.ascontiguousarray(x[start : start + BATCH]), y[start : start + BATCH])
            if learner.task.index > index:
                passed.append(learner.steps - 1)  # before this batch
        if kind != "never":
            learner.end_task()
    if kind == "given":
        passed = changes[1:]
    after = [next((step - change for step in passed if 0 <= step - change <= SOON), None) for change in changes[1:]]
    late = [delay for delay in after if delay is not None]
    return {
        "changes": len(after),
        "found": len(late),
        "batches late": round(float(np.mean(late)), 1) if late else None,
        "false": len(passed) - len(late),
        "accuracy": round(learner.evaluate(held_x, held_y), 2),
    }


def main():
    torch.set_num_threads(1)
    name, seeds = sys.argv[1:]
    for seed in map(int, seeds.split(",")):
        for kind in KINDS:
            print(
                json.dumps({"stream": name, "boundaries": kind, "seed": seed} | measure(name, kind, seed)), flush=True
            )


if __name__ == "__main__":
    main()
