"""What a captured step spends its time on, kernel by kernel: python benchmarks/profile_steps.py (needs a CUDA device).

Each learner is in its second task on random images of CIFAR-100's sizes. Milliseconds are the best of three loops.
"""

import time

import torch

from s6mod.learner import Learner

LEARNERS = (("er", None, 300), ("er", "s6mod", 300), ("ocm", None, 30), ("mose", None, 60))  # and steps in a loop


def batches(count, classes):
    random = torch.Generator().manual_seed(0)
    for _ in range(count):
        x = torch.randint(0, 256, (10, 3, 32, 32), generator=random, dtype=torch.uint8)
        yield x, torch.tensor(classes)[torch.randint(0, len(classes), (10,), generator=random)]


def ms_per_step(learner, steps):
    made = list(batches(steps, list(range(10, 20))))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for x, y in made:
        learner.learn(x, y)
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin) / steps


for method, branch, steps in LEARNERS:
    learner = Learner(method, branch, num_classes=100, memory_size=2000)
    for x, y in batches(8, list(range(10))):
        learner.learn(x, y)
    learner.end_task()
    ms_per_step(learner, 8)
    print(f"{method} + {branch}: {min(ms_per_step(learner, steps) for _ in range(3)):.2f} ms captured")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        ms_per_step(learner, 3)
    for kernel in sorted(profile.key_averages(), key=lambda each: -each.device_time_total)[:16]:
        print(f"  {kernel.device_time_total / 3000:8.3f} ms {kernel.count // 3:5d}x {kernel.key[:80]}")
