"""What the host spends on a step, and how well runs side by side keep a GPU busy: python benchmarks/host_time.py.

The same steps are taken four ways: by learners alone, as ``s6mod bench`` packs them, and by whole runs, as ``s6mod
sweep`` takes them, without records, with records, with checkpoints too. "host" is the time until a burst of steps is
handed to an idle device, "all" the time until many are done; both are microseconds for one step of one run. Where
"host" is near "all", the host waits for the device, or all wait for the host. On a CPU the device's part is left out.

With CUDA_DEVICE_MAX_CONNECTIONS=2 one sees what a process gets by default that shares the device by MPS.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from s6mod.data import Dataset
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import _Active
from s6mod.runs.run import Run

BURST = 20  # rounds that any device queues without making the host wait
NEVER = 100_000
WAYS: dict[str, dict[str, int] | None] = {
    "learners alone": None,
    "runs": {"log_every": NEVER, "checkpoint_every": NEVER},
    "runs, a record every 50 steps": {"log_every": 50, "checkpoint_every": NEVER},
    "... and a checkpoint every 100": {"log_every": 50, "checkpoint_every": 100},
}


def synthetic(device: torch.device) -> Dataset:
    """Noise in the shape of CIFAR-100."""
    random = torch.Generator().manual_seed(0)
    train, test = (torch.randint(0, 256, (n, 3, 32, 32), generator=random, dtype=torch.uint8) for n in (50_000, 1000))
    return Dataset.from_arrays(train, torch.arange(50_000) % 100, test, torch.arange(1000) % 100).to(device)


def begin(number: int, folder: Path, dataset: Dataset, output: dict[str, Any], width: int) -> _Active:
    """A run in its steady state; its steps are those of its first task."""
    config = RunConfig.parse(
        {
            "method": {"name": "er", "network": {"width": width}},
            "branch": {"name": "s6mod"},
            "memory_size": 2000,
            "seed": number,
            "stream": {"tasks": 10},
            "engine": {"device": str(dataset.train_images.device)},
            "output": output,
        }
    )
    active = _Active(number, Run.begin(config, folder, dataset))
    for _ in range(18):  # until the memory batch is full and the step is captured
        active.advance()
    if active.stream is None:
        names = tuple(active.run.learner.ledger.sums)
        active.run.learner.step = lambda inputs: names  # type: ignore[assignment]
    return active


def measured(one_round: Callable[[], None], rounds: int, cuda: bool) -> tuple[float, float]:
    """Seconds for one round: on the host alone, and in all."""

    def timed(count: int) -> tuple[float, float]:
        start = time.perf_counter()
        for _ in range(count):
            one_round()
        issued = time.perf_counter() - start
        if cuda:
            torch.cuda.synchronize()
        return issued / count, (time.perf_counter() - start) / count

    return timed(BURST)[0], timed(rounds)[1]


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="side by side")
    parser.add_argument("--rounds", type=int, default=400, help="of one step each; a task has 500")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    torch.set_num_threads(1)
    dataset = synthetic(torch.device("cuda" if cuda else "cpu"))
    queues = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "default")
    print(f"{arguments.runs} runs, {torch.cuda.get_device_name() if cuda else 'CPU'}, work queues: {queues}")
    rows = torch.arange(0, 1000, 100)  # a batch of one class
    images, labels = dataset.train_images[rows].cpu(), dataset.train_labels[rows]
    for name, output in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            settings = output or WAYS["runs"] or {}
            runs = [
                begin(n, Path(folder) / str(n), dataset, settings, 64 if cuda else 4) for n in range(arguments.runs)
            ]

            def whole_runs(runs: list[_Active] = runs) -> None:
                for each in runs:
                    each.advance()

            def learners_alone(runs: list[_Active] = runs) -> None:
                for each in runs:
                    with each._on_stream():
                        each.run.learner.learn(images, labels)

            host, all_ = measured(whole_runs if output else learners_alone, arguments.rounds, cuda)
            print(f"{name:32s} host {1e6 * host / len(runs):7.0f}   all {1e6 * all_ / len(runs):7.0f}", flush=True)
            for each in runs:
                each.steps.close()
                each.run._states.wait()


if __name__ == "__main__":
    main()
