import pytest

from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

QUICK = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
    "memory_size": 50,
    "stream": {"tasks": 3, "samples_per_task": 50},
    "output": {"log_every": 4, "checkpoint_every": 5, "checkpoint_seconds": 0},
}


@pytest.fixture
def train(digits):
    """Begin or resume a small run of 15 steps with trackers and take it to its end."""

    def run(folder, *trackers, watch=None, seed=0):
        config = RunConfig.parse(QUICK | {"output": {**QUICK["output"], "track": list(trackers)}, "seed": seed})
        if (folder / "config.json").exists():
            return execute([lambda: Run.resume(folder, digits, watch, config)])[0]
        return execute([lambda: Run.begin(config, folder, digits, watch)])[0]

    return run
