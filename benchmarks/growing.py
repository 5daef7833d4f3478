"""What it costs to be told nothing: OMP_NUM_THREADS=1 python benchmarks/growing.py [SEED ...]

A stream of 300 classes that arrive one by one, ten generated images each. One learner is told that there will be 300,
the other takes names and grows from 16 outputs to 512. Both see the same images in the same order. Prints accuracy on
images of all classes, by the head and by nearest means, with and without S6MOD: mean and standard deviation over seeds.
"""

import sys
import time

import numpy as np
import torch

from s6mod import Learner

CLASSES, LEARNED, HELD, SIDE, ROOM = 300, 10, 4, 16, 1
METHOD = {"name": "er", "network": {"width": 8}, "augment": "none", "memory_batch": 32, "optimizer": {"lr": 2e-3}}
OPTIONS = {"memory_size": 5 * CLASSES, "updates": 3, "average": 0.99, "statistics": "memory"}
S6MOD = {"name": "s6mod", "num_patterns": 4, "frame": "orthogonal"}
TABLES = ("head", "ncm")


def images(prototypes, count, rng):
    """So many images of each prototype (C, 3, S, S), at a random place and noisy: (C, count, 3, side, side) uint8."""
    found = np.empty((len(prototypes), count, 3, SIDE, SIDE))
    for drawn, prototype in zip(found, prototypes, strict=True):
        for image, (row, column) in zip(drawn, rng.integers(0, 2 * ROOM + 1, (count, 2)), strict=True):
            image[:] = prototype[:, row : row + SIDE, column : column + SIDE]
    return (found + rng.normal(0, 20, found.shape)).clip(0, 255).astype(np.uint8)


def measure(seed, branch, told):
    """Accuracy in percent by each table, and seconds."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 256, (CLASSES, 3, 5, 5))
    prototypes = coarse.repeat(4, axis=2).repeat(4, axis=3)[:, :, 1:-1, 1:-1]  # (C, 3, 18, 18)
    learned, held = images(prototypes, LEARNED, rng), images(prototypes, HELD, rng)
    names = np.arange(CLASSES) if told else np.array([f"class {number}" for number in range(CLASSES)])
    size = {"num_classes": CLASSES} if told else {}
    learner = Learner(METHOD, branch, seed=seed, **OPTIONS, **size)
    begun = time.process_time()
    for number in rng.permutation(CLASSES):
        learner.learn(learned[number], names[[number] * LEARNED])
    seconds = time.process_time() - begun
    answers = learner.scores(held.reshape(-1, 3, SIDE, SIDE))
    labels = torch.from_numpy(np.arange(CLASSES).repeat(HELD))
    right = learner.classes.numbers(names[labels], len(labels))
    return [100 * (answers[name].argmax(1).cpu() == right).double().mean().item() for name in TABLES], seconds


def main():
    """A row for each learner."""
    torch.set_num_threads(1)
    seeds = [int(seed) for seed in sys.argv[1:]] or [0, 1, 2]
    print("| learner | told | head | nearest means | CPU seconds |\n|---|---|---|---|---|")
    for name, branch in (("ER", None), ("ER + S6MOD", S6MOD)):
        found = {}
        for told in (True, False):
            rows, seconds = zip(*(measure(seed, branch, told) for seed in seeds), strict=True)
            found[told] = np.array(rows)
            what = "300 classes" if told else "nothing"
            print(f"| {name} | {what} | {cells(found[told])} | {np.mean(seconds):.0f} |")
        print(f"| {name} | difference of each seed | {cells(found[False] - found[True])} | |", flush=True)


def cells(rows):
    """Mean and standard deviation of each column."""
    return " | ".join(f"{a:.1f} ± {b:.1f}" for a, b in zip(rows.mean(0), rows.std(0, ddof=1), strict=True))


if __name__ == "__main__":
    main()
