"""Whether probabilities tell how often they are right: python benchmarks/calibration.py STREAM SEEDS [KEY=VALUE ...]

Trains as ``defaults.py`` does, with a learner that tests each batch before it learns it, and prints a line of JSON a
seed: the expected calibration error on images that are held out, in points, with temperature 1 and with the fitted one.
It is the mean over the images, in 15 bins by their highest probability, of the distance between the mean of that
probability and the accuracy in the bin. KEY=VALUE are fields of the learner on top of the preset ``everyday``.
"""

import json
import sys

import numpy as np
import torch

from defaults import BATCH, STREAMS, stream
from s6mod import Learner
from s6mod.config import assign

BINS = 15


def calibration_error(probabilities, labels):
    """(N, C) and (N,) -> points."""
    sure, predicted = probabilities.max(1)
    hits, bins = (predicted == labels).double(), (BINS * sure).long().clamp(max=BINS - 1)
    apart = [(hits[bins == each] - sure[bins == each]).sum().abs() for each in bins.unique()]
    return 100 * float(sum(apart)) / len(labels)


def measure(name, seed, values):
    rng = np.random.default_rng(seed)
    x, y, held_x, held_y = STREAMS[name](rng, False)
    learner = Learner.preset("everyday", num_classes=int(y.max()) + 1, seed=seed, test_then_train=True, **values)
    for ids in stream(y, rng):
        for batch in np.split(ids, range(BATCH, len(ids), BATCH)):
            learner.learn(x[batch], y[batch])
        learner.end_task()
    held_x, held_y = torch.from_numpy(held_x), torch.from_numpy(held_y)
    plain = learner.scores(held_x)[learner.primary].softmax(1).cpu()
    return {
        "accuracy": round(learner.evaluate(held_x, held_y), 2),
        "temperature": round(learner.temperature, 3),
        "before": round(calibration_error(plain, held_y), 2),
        "after": round(calibration_error(learner.predict_proba(held_x), held_y), 2),
    }


def main():
    torch.set_num_threads(1)
    name, seeds, *changes = sys.argv[1:]
    values = {}
    for change in changes:
        values = assign(values, change)
    for seed in map(int, seeds.split(",")):
        print(json.dumps({"stream": name, "seed": seed, "changes": changes} | measure(name, seed, values)), flush=True)


if __name__ == "__main__":
    main()
