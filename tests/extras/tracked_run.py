"""A small run with a tracker: ``python tracked_run.py FOLDER TRACKER STEP``; at STEP it is killed, as by the system."""

import os
import signal
import sys
from pathlib import Path

import torch

from s6mod.runs.config import RunConfig
from s6mod.runs.execute import execute
from s6mod.runs.run import Run

folder, tracker, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
config = RunConfig.parse(
    {
        "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
        "branch": {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3},
        "memory_size": 50,
        "stream": {"tasks": 3, "samples_per_task": 50},
        "output": {
            "log_every": 2,
            "checkpoint_every": 5,
            "checkpoint_seconds": 0,
            "track": [tracker] * (tracker != "none"),
        },
    }
)


def watch(progress):
    if progress.step >= last:
        os.kill(os.getpid(), signal.SIGKILL)


begun = (folder / "config.json").exists()
execute([lambda: Run.resume(folder, None, watch) if begun else Run.begin(config, folder, None, watch)])
