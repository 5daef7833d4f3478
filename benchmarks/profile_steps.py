"""What a captured step spends its time on: python benchmarks/profile_steps.py [--in-order] (needs a CUDA device).

The learners are those of ``s6mod bench``. Milliseconds are the median of five loops. Then come the kernels that take
longest together, or with --in-order each launch of one step: its start and length in microseconds.
"""

import sys
from statistics import median

import torch

from s6mod.runs.bench import WARM_UP, Contender, seconds_per_step
from s6mod.runs.cells import parse
from s6mod.runs.completion import complete

LEARNERS = {"er": 200, "er+s6mod/view=shared/beta=0.5": 200, "er+s6mod": 200, "ocm": 30, "mose": 60}  # steps of a loop
PROFILED = 3  # steps


def in_order(profile):
    launches = [each for each in profile.events() if each.device_type == torch.autograd.DeviceType.CUDA]
    launches = sorted(launches, key=lambda each: each.time_range.start)[-(len(launches) // PROFILED) :]
    for each in launches:
        start = each.time_range.start - launches[0].time_range.start
        print(f"  {start:8.1f} {each.time_range.elapsed_us():7.2f} {each.name[:100]}", flush=True)


def longest(profile):
    for kernel in sorted(profile.key_averages(), key=lambda each: -each.device_time_total)[:16]:
        ms, times = kernel.device_time_total / 1000 / PROFILED, kernel.count // PROFILED
        print(f"  {ms:8.3f} ms {times:5d}x {kernel.key[:80]}", flush=True)


torch.set_num_threads(1)  # as in runs on a GPU
for cell, steps in LEARNERS.items():
    name, *_ = cell.split("/")
    method, _, branch = name.partition("+")
    values = complete(parse(cell, "cifar100", 2000).values())
    contender = Contender(method, branch or "none", "auto", width=64, device="cuda", precision="auto", values=values)
    learner = contender.learner()
    seconds_per_step(learner, WARM_UP)
    loops = [seconds_per_step(learner, steps) for _ in range(5)]
    print(f"{cell}: {1000 * median(loops):.2f} ms captured", flush=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        seconds_per_step(learner, PROFILED)
    (in_order if "--in-order" in sys.argv else longest)(profile)
