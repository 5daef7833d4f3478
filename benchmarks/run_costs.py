"""What a run with many tasks spends its time on: python benchmarks/run_costs.py COSTS.json --commit-label LABEL.

ER on generated images of 64x64 pixels: 200 classes in 100 tasks of 100 steps, 5,000 images in memory, 10,000 test
images, evaluation of every task seen after each. It tells seconds in steps, evaluation, passes over the memory,
checkpoints, records and the rest. The device is waited for at both ends of each part, which costs a run little and
counts what is still under way where it belongs. Memory passes are those within evaluations, and no part of the seconds
of "evaluation".

It times by the names of phases that versions share, so that PYTHONPATH=OLD/src times another version. With --against
COSTS.json it compares the accuracies with those of another run of it.
"""

import argparse
import functools
import itertools
import json
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn import functional as F

import s6mod
from s6mod.config import merge
from s6mod.data import Dataset
from s6mod.engine.checkpoint import Snapshot
from s6mod.engine.evaluate import Predictor
from s6mod.runs.config import OutputConfig, RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

WARM_UP = 60  # steps
PARTS = ("steps", "evaluation", "memory passes", "checkpoints", "records", "rest")


class Clock:
    """Seconds by part; a part within another is taken out of it."""

    def __init__(self, device):
        self.device = device
        self.seconds, self.calls = defaultdict(float), defaultdict(int)
        self.within = []

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def part(self, name):
        begin = self.now()
        self.within.append(name)
        try:
            yield
        finally:
            spent = self.now() - begin
            self.within.pop()
            self.seconds[name] += spent
            self.calls[name] += 1
            if self.within:
                self.seconds[self.within[-1]] -= spent

    def wrap(self, owner, name, part):
        """Time a method or a cached property of a class."""
        found = vars(owner)[name]
        work = found.func if isinstance(found, functools.cached_property) else found

        @functools.wraps(work)
        def timed(*given, **named):
            with self.part(part):
                return work(*given, **named)

        if isinstance(found, functools.cached_property):
            found.func = timed
        else:
            setattr(owner, name, timed)


def generated(options, device):
    """Classes that differ by a pattern of 8x8 cells, under noise."""
    random = torch.Generator(device).manual_seed(0)
    patterns = torch.rand(2 * options.tasks, 3, 8, 8, device=device, generator=random)

    def images(labels):
        parts = []
        for some in labels.to(device).split(5000):
            clean = F.interpolate(patterns[some], size=options.side, mode="nearest")
            noise = torch.randn(clean.shape, device=device, generator=random)
            parts.append((128 + 60 * (clean - 0.5) + 60 * noise).clamp(0, 255).to(torch.uint8))
        return torch.cat(parts)

    classes = 2 * options.tasks
    train, test = torch.arange(10 * options.steps * options.tasks) % classes, torch.arange(options.test) % classes
    return Dataset.from_arrays(images(train), train, images(test), test, name="generated")


def configured(options):
    output = {"log_every": 50, "checkpoint_every": options.checkpoint_every}
    if "tables" in OutputConfig.model_fields:
        output["tables"] = options.tables
    values = {
        "method": {"name": options.method, "network": {"width": options.width}},
        "memory_size": options.memory,
        "stream": {"tasks": options.tasks},
        "statistics": options.statistics,
        "average": options.average,
        "engine": {"device": options.device},
        "output": output,
    }
    return RunConfig.parse(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path, help="JSON file for what was found")
    parser.add_argument("--commit-label", required=True)
    parser.add_argument("--against", type=Path, help="JSON file of another version")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--method", default="er")
    parser.add_argument("--tables", choices=["all", "primary"], default="primary", help="where a version can choose")
    parser.add_argument("--statistics", choices=["running", "memory"], default="running")
    parser.add_argument("--average", type=float)
    parser.add_argument("--checkpoint-every", type=int, default=1000)
    for name, value in {"tasks": 100, "steps": 100, "memory": 5000, "test": 10_000, "side": 64, "width": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    device = torch.device(options.device)
    clock, passes = Clock(device), []
    beside = []  # seconds of the threads that write states
    forward, write = Predictor._forward, Snapshot.write

    def counted(self, images, peers):
        passes.append(len(images))
        return forward(self, images, peers)

    def timed_write(self, folder):
        begin = time.perf_counter()
        write(self, folder)
        beside.append(time.perf_counter() - begin)

    Predictor._forward, Snapshot.write = counted, timed_write
    for owner, name, part in (
        (Run, "_evaluate", "evaluation"),
        (Predictor, "reference", "memory passes"),
        (Predictor, "_calibrated", "memory passes"),
        (Run, "checkpoint", "checkpoints"),
        (Run, "_log", "records"),
        (Run, "_record", "records"),
        (Run, "_conclude", "rest"),
    ):
        clock.wrap(owner, name, part)

    data, config = generated(options, device), configured(options)
    _ = data.fingerprint
    with tempfile.TemporaryDirectory() as folder:
        if device.type == "cuda":  # the first steps of a process compile kernels
            few = merge(config.plain(), {"stream": {"limit": 10 * WARM_UP}})
            execute([lambda: Run.begin(RunConfig.parse(few), Path(folder) / "warm-up", data)])
            for noted in (clock.seconds, clock.calls, passes, beside):
                noted.clear()
        with clock.part("rest"):
            run = Run.begin(config, Path(folder) / "run", data)
        with clock.part("steps"):
            [result] = execute([lambda: run])
    seconds = {name: round(clock.seconds[name], 3) for name in PARTS}
    total = sum(clock.seconds.values())
    found = {
        "label": options.commit_label,
        "source": str(Path(s6mod.__file__).parent),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "options": {name: value for name, value in vars(options).items() if name not in ("out", "against")}
        | {"tables": getattr(config.output, "tables", "all")},
        "seconds": seconds | {"total": round(total, 3)},
        "percent beside steps": round(100 * (1 - clock.seconds["steps"] / total), 2),
        "ms per step": round(1000 * clock.seconds["steps"] / result["steps"], 3),
        "calls": dict(clock.calls),
        "seconds of writing threads": round(sum(beside), 3),
        "forward passes": len(passes),
        "images forward": sum(passes),
        "accuracy": result["metrics"][result["primary"]]["accuracy"],
        "matrix": result["matrices"][result["primary"]],
    }
    if options.against is not None:
        other = json.loads(options.against.read_text(encoding="utf-8"))
        ours, theirs = (itertools.chain.from_iterable(each["matrix"]) for each in (found, other))
        pairs = list(zip(ours, theirs, strict=True))
        found["against"] = {
            "label": other["label"],
            "entries": len(pairs),
            "entries that differ": sum(a != b for a, b in pairs),
            "largest difference": max(abs(a - b) for a, b in pairs),
        }
    options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps({name: value for name, value in found.items() if name != "matrix"}, indent=1))


if __name__ == "__main__":
    main()
