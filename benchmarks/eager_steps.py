"""Milliseconds of an eager step of ER and of ER + S6MOD (shared view) on two cores, to compare versions of the code.

PYTHONPATH=OTHER_CHECKOUT/src python benchmarks/eager_steps.py, in turns with this checkout's src. Medians of six steps.
"""

import time
from statistics import median

import torch

from s6mod.learner import Learner

torch.set_num_threads(2)


def batches(count, task):
    random = torch.Generator().manual_seed(task)
    for _ in range(count):
        images = torch.randint(0, 256, (10, 3, 32, 32), generator=random, dtype=torch.uint8)
        yield images, 10 * task + torch.randint(0, 10, (10,), generator=random)


for branch in (None, {"name": "s6mod", "beta": 0.5}):
    engine = {"device": "cpu", "precision": "float32"}
    learner = Learner("er", branch, num_classes=100, memory_size=2000, engine=engine)
    learner.build((3, 32, 32))
    for x, y in batches(8, 0):  # until a memory batch is full
        learner.learn(x, y)
    times = []
    for x, y in batches(6, 1):
        begin = time.perf_counter()
        learner.learn(x, y)
        times.append(1000 * (time.perf_counter() - begin))
    print(f"{'er' if branch is None else 'er+s6mod'}: {median(times):.0f} ms", flush=True)
