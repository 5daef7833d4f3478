"""Small grids for real launchers, and what their runs leave behind."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from s6mod.experiments.sweep import SweepConfig, make_sweep
from s6mod.experiments.worker import run_batch
from s6mod.runs.store import scan
from watching import Log

GRID = {
    "method": {"network": {"width": 2}, "memory_batch": 4},
    "stream": {"tasks": 2, "samples_per_task": 140},
    "output": {"checkpoint_every": 3, "checkpoint_seconds": 0, "log_every": 1},
}


class Grid:
    """Two learners, two seeds."""

    cells, seeds, over = ["er", "er+confidence"], "0-1", GRID

    def jobs(self, out):
        config = SweepConfig(cells=self.cells, memory=20, seeds=self.seeds, set=self.over)
        return make_sweep(config, [], {"engine": {"device": "cpu"}}, out, scan([out] if out.exists() else [])).jobs

    def straight(self, out):
        """The same runs one after another in this process."""
        run_batch([(job.config, job.folder) for job in self.jobs(out)], None, lambda event: None)
        return {folder.name: self.bits(folder) for folder in out.iterdir()}

    def bits(self, folder):
        """All that a run learned: matrices, the final state and the records, but no times."""
        result = json.loads((folder / "result.json").read_text())
        state = json.loads((folder / "checkpoint" / "state.json").read_text())
        return result["matrices"], state["sha256"], (folder / "records.jsonl").read_text()


@pytest.fixture
def grid():
    return Grid()


def holder(folder):
    """The process that has the run in a folder under way, if one has."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            if process.name != str(os.getpid()) and any(
                os.readlink(handle) == str(folder) for handle in (process / "fd").iterdir()
            ):
                return int(process.name)
    return None


class Strike(threading.Thread):
    """Strikes in the middle of a run, once it has a checkpoint: by default, kills the process that has it."""

    def __init__(self, folder, number=signal.SIGKILL, process=None):
        super().__init__(daemon=True)
        self.folder, self.number, self.process, self.struck = folder, number, process, None
        self.start()

    def run(self):
        while (process := self.process or holder(self.folder)) is None:
            time.sleep(0.01)
        while not (self.folder / "checkpoint" / "state.json").exists():
            time.sleep(0.01)
        assert not (self.folder / "result.json").exists()
        os.kill(process, self.number)
        self.struck = process


@pytest.fixture
def strike():
    return Strike


@pytest.fixture
def log():
    return Log()
