"""A real SLURM of one node, where its packages are installed: preemption with a grace time, and what sbatch refuses."""

import signal
import threading
import time

import pytest

from extras import slurm_cluster
from s6mod.errors import ConfigError

pytestmark = [pytest.mark.extras, pytest.mark.skipif(slurm_cluster.missing() is not None, reason="no SLURM installed")]


@pytest.fixture
def cluster(monkeypatch):
    with slurm_cluster.Cluster() as one:
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, one.environment[name])
        yield one


class Preempt(threading.Thread):
    """Lets a job of higher rank take the node once the run has stopped; then lets the first go on at once."""

    def __init__(self, cluster, stopped):
        super().__init__(daemon=True)
        self.cluster, self.stopped, self.states = cluster, stopped, []
        self.start()

    def run(self):
        self.stopped.join()
        self.cluster.call("sbatch", "--partition=high", "--output=/dev/null", "--wait", "--wrap=sleep 2")
        while not self.states or self.states[-1] != "RUNNING":
            self.states.append(self.cluster.call("squeue", "--noheader", "--jobs=1", "--format=%T").strip())
            self.cluster.call("scontrol", "update", "JobId=1", "StartTime=now")  # SLURM lets it wait for two minutes
            time.sleep(0.5)


def test_a_job_that_is_preempted_saves_and_goes_on_later_with_the_same_bits(
    tmp_path, grid, log, cluster, monkeypatch, strike
):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    monkeypatch.setattr(grid, "cells", ["er"], raising=False)
    monkeypatch.setattr(grid, "seeds", "0", raising=False)
    with pytest.raises(ConfigError, match="got: sbatch: unrecognized option '--nonsense=1'; mend --sbatch"):
        SlurmLauncher(tmp_path / "refused", gpu=False, sbatch={"nonsense": "1"}).launch(
            grid.jobs(tmp_path / "refused"), log
        )
    out = tmp_path / "slurm"
    todo = grid.jobs(out)
    # The run stands still until SLURM preempts it: the first signal of a preemption lets a stopped process go on.
    preempt = Preempt(cluster, strike(todo[0].folder, signal.SIGSTOP))
    launcher = SlurmLauncher.checked(out, "cpu", False, 30, ["partition=low"], workers=1, at_once=None, retries=0)
    outcome = launcher.launch(todo, log)
    assert outcome.failures == {}, cluster.why()
    assert "PENDING" in preempt.states  # it was in the queue again
    assert len(list((out / ".slurm").glob("*_submitted.pkl"))) == 1  # nobody sent it twice
    [said] = (out / ".slurm").glob("*_0_log.out")
    assert "Requeued job 1" in said.read_text()
    assert {job.folder.name: grid.bits(job.folder) for job in todo} == grid.straight(tmp_path / "straight")
