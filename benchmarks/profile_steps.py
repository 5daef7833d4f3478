"""What a captured step spends its time on, kernel by kernel: python benchmarks/profile_steps.py (needs a CUDA device).

The learners are those of ``s6mod bench``. Milliseconds are the best of three loops.
"""

import torch

from s6mod.engine.bench import WARM_UP, Subject, seconds_per_step
from s6mod.experiments.cells import parse
from s6mod.experiments.schema import complete

LEARNERS = (("er", "none", 300), ("er", "s6mod", 300), ("ocm", "none", 30), ("mose", "none", 60))  # and steps in a loop
PROFILED = 3  # steps

for method, branch, steps in LEARNERS:
    values = complete(parse(method if branch == "none" else f"{method}+{branch}", "cifar100", 2000).values())
    subject = Subject(method, branch, "auto", width=64, device="cuda", precision="auto", values=values)
    learner = subject.learner()
    seconds_per_step(learner, WARM_UP)
    best = min(seconds_per_step(learner, steps) for _ in range(3))
    print(f"{subject.name}: {1000 * best:.2f} ms captured", flush=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        seconds_per_step(learner, PROFILED)
    for kernel in sorted(profile.key_averages(), key=lambda each: -each.device_time_total)[:16]:
        ms, times = kernel.device_time_total / 1000 / PROFILED, kernel.count // PROFILED
        print(f"  {ms:8.3f} ms {times:5d}x {kernel.key[:80]}", flush=True)
