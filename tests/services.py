"""A small service, and what it is sent."""

import time

from learners import batch as images_and_labels
from s6mod import Learner
from s6mod.serve.settings import Rules

SIDE = 8
RULES = Rules(checkpoint_seconds=3600, snapshot_every=0)  # it saves when it ends


def small():
    return Learner({"name": "er", "network": {"width": 2}, "memory_batch": 3}, memory_size=12, seed=3)


def batch(number, classes=("a", "b")):
    images, labels = images_and_labels(number, tuple(range(len(classes))), side=SIDE)
    return images.numpy(), [classes[label] for label in labels.tolist()]


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)
