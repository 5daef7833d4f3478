"""What it costs to be told nothing: OMP_NUM_THREADS=1 python benchmarks/growing.py [--data NAME] [--seeds N ...]

A stream of classes that arrive one by one. One learner is told how many there will be, the other takes names and grows
from 16 outputs. Both see the same images in the same order. Prints accuracy on images of all classes, by the head and
by nearest means, with and without S6MOD: mean and standard deviation over seeds.

Images are generated, 300 classes of ten. With --data they are those of a data set, and the settings those of its cell:
--data cifar100 --data-root DIR learns all of CIFAR-100 by ER of width 64, --images says how many of a class, the test
images judge. Batches are of ten images of one class. --json writes what each learner has, after each of them.
"""

import argparse
import json
import time

import numpy as np
import torch

from s6mod import Learner
from s6mod.data import load

CLASSES, LEARNED, HELD, SIDE, ROOM, BATCH = 300, 10, 4, 16, 1, 10
METHOD = {"name": "er", "network": {"width": 8}, "augment": "none", "memory_batch": 32, "optimizer": {"lr": 2e-3}}
OWN = {"memory_size": 5 * CLASSES, "updates": 3}  # of generated images
PREDICTS = {"average": 0.99, "statistics": "memory"}
FRAME = {"frame": "orthogonal"}  # that of a learner that grows
S6MOD = {"name": "s6mod", "num_patterns": 4, **FRAME}
TABLES = ("head", "ncm")


def images(prototypes, count, rng):
    """So many images of each prototype (C, 3, S, S), at a random place and noisy: (C, count, 3, side, side) uint8."""
    found = np.empty((len(prototypes), count, 3, SIDE, SIDE))
    for drawn, prototype in zip(found, prototypes, strict=True):
        for image, (row, column) in zip(drawn, rng.integers(0, 2 * ROOM + 1, (count, 2)), strict=True):
            image[:] = prototype[:, row : row + SIDE, column : column + SIDE]
    return (found + rng.normal(0, 20, found.shape)).clip(0, 255).astype(np.uint8)


def generated(rng):
    """Names, images to learn of each class, and images to judge by with their numbers."""
    coarse = rng.uniform(0, 256, (CLASSES, 3, 5, 5))
    prototypes = coarse.repeat(4, axis=2).repeat(4, axis=3)[:, :, 1:-1, 1:-1]  # (C, 3, 18, 18)
    learned, held = images(prototypes, LEARNED, rng), images(prototypes, HELD, rng)
    names = np.array([f"class {number}" for number in range(CLASSES)])
    return names, learned, held.reshape(-1, 3, SIDE, SIDE), np.arange(CLASSES).repeat(HELD)


def taken(data, most, rng):
    """The same of a data set, at most so many images of a class to learn."""
    rows = [np.flatnonzero(data.train_labels == number) for number in range(len(data.class_names))]
    learned = [data.train_images[rng.permutation(of_class)[:most]] for of_class in rows]
    return np.array(data.class_names), learned, data.test_images, data.test_labels.numpy()


def made(given, with_branch, **options):
    """A learner of generated images, or one by the cell of a data set."""
    options |= PREDICTS | {"engine": {"device": given.device}}
    if given.data is None:
        return Learner(METHOD, S6MOD if with_branch else None, **OWN, **options)
    branch = {"branch": FRAME} if with_branch else {}
    method = {"network": {"width": given.width}} if given.width else {}
    return Learner.preset(f"er{'+s6mod' * with_branch}/{given.data}", method=method, **branch, **options)


def measure(learner, names, order, learned, held, labels):
    """Accuracy in percent by each table, and seconds."""
    clock = time.perf_counter if learner.engine.device.type == "cuda" else time.process_time
    begun = clock()
    for number in order:
        for start in range(0, len(learned[number]), BATCH):
            batch = learned[number][start : start + BATCH]
            learner.learn(batch, names[[number] * len(batch)])
    answers = learner.scores(held)
    right = learner.classes.numbers(names[labels], len(labels))
    found = {name: 100 * (answers[name].argmax(1).cpu() == right).double().mean().item() for name in TABLES}
    return {**found, "seconds": clock() - begun, "steps": learner.steps, "outputs": learner.parts.capacity}


def main():
    """A row for each learner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a data set that has a preset, such as cifar100; default: generated images")
    parser.add_argument("--data-root", help="folder in which it lies")
    parser.add_argument("--images", type=int, help="of a class of the data set; default: all")
    parser.add_argument("--width", type=int, help="of the network for a data set; default: the preset's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--json", help="also write what each learner has here")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = given.data and load(given.data, given.data_root)
    device = torch.cuda.get_device_name() if given.device.startswith("cuda") else "cpu"
    facts = {**vars(given), "device": device, "torch": torch.__version__, "runs": []}
    print("| learner | told | head | nearest means | seconds |\n|---|---|---|---|---|")
    for name, with_branch in (("ER", False), ("ER + S6MOD", True)):
        found = {}
        for told in (True, False):
            rows = []
            for seed in given.seeds:
                rng = np.random.default_rng(seed)
                names, *rest = generated(rng) if data is None else taken(data, given.images, rng)
                learner = made(given, with_branch, seed=seed, num_classes=len(names) if told else None)
                labels = np.arange(len(names)) if told else names
                rows.append(measure(learner, labels, rng.permutation(len(names)), *rest))
                facts["runs"].append({"learner": name, "told": told, "seed": seed, **rows[-1]})
                if given.json:
                    with open(given.json, "w", encoding="utf-8") as file:
                        json.dump(facts, file, indent=1)
            found[told] = np.array([[row[table] for table in TABLES] for row in rows])
            what = f"{len(names)} classes" if told else "nothing"
            seconds = np.mean([row["seconds"] for row in rows])
            print(f"| {name} | {what} | {cells(found[told])} | {seconds:.0f} |", flush=True)
        print(f"| {name} | difference of each seed | {cells(found[False] - found[True])} | |", flush=True)


def cells(rows):
    """Mean and standard deviation of each column."""
    spread = rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(len(TABLES))
    return " | ".join(f"{mean:.1f} ± {each:.1f}" for mean, each in zip(rows.mean(0), spread, strict=True))


if __name__ == "__main__":
    main()
