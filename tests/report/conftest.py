"""Small real runs to report on, made once, and a way to call the command."""

import pytest

from s6mod.config import merge
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

QUICK = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
    "memory_size": 50,
    "stream": {"tasks": 3, "samples_per_task": 50},
    "output": {"log_every": 2, "eval_every": 3, "keep_checkpoint": False},
}
BRANCHES = {
    None: {},
    "s6mod": {"branch": {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}},
    "confidence": {"branch": {"name": "confidence"}},
}


def quick(branch, seed):
    return RunConfig.parse(merge(QUICK, {"seed": seed, **BRANCHES[branch]}))


@pytest.fixture(scope="session")
def runs(tmp_path_factory, digits):
    """ER and S6MOD on two seeds, the control on one."""
    folder = tmp_path_factory.mktemp("runs")
    configs = [quick(branch, seed) for branch in (None, "s6mod", "confidence") for seed in (0, 1)][:-1]
    execute([lambda c=config: Run.begin(c, folder / c.folder_name, digits) for config in configs])
    return folder
