"""submitit's local executor: jobs as it makes them for SLURM, run as processes of this machine."""

import os
import signal
import time

import pytest

from s6mod.errors import ConfigError

pytestmark = pytest.mark.extras


@pytest.fixture
def no_slurm(monkeypatch):
    """A machine without it, whatever is installed."""
    import submitit

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: -1))


@pytest.mark.usefixtures("no_slurm")
def test_a_job_killed_and_a_job_at_its_time_limit_change_no_bit_of_any_result(tmp_path, grid, strike, log):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    out = tmp_path / "slurm"
    todo = grid.jobs(out)
    killed = strike(todo[0].folder, signal.SIGKILL)
    limited = strike(todo[1].folder, signal.SIGUSR2)  # what SLURM sends before the time limit
    launcher = SlurmLauncher.checked(out, "auto", False, None, ["partition=any"], workers=2, at_once=None, retries=None)
    outcome = launcher.launch(todo, log)
    assert killed.struck is not None
    assert limited.struck is not None
    assert outcome.failures == {}
    assert sorted(log.ended) == sorted(job.name for job in todo)
    assert log.failures == [(todo[0].name, True)]  # the sweep sent it again; the other one queued itself
    assert "left no result" in log.reasons[0]
    assert sum("Requeued job" in file.read_text() for file in (out / ".slurm").glob("*.out")) == 1
    assert not any("starts over" in text for text in log.said)
    expected = grid.straight(tmp_path / "straight")
    assert {job.folder.name: grid.bits(job.folder) for job in todo} == expected


def test_sbatch_is_told_of_the_array_the_limit_and_the_gpu_and_no_run_is_sent_twice(tmp_path, grid, log, monkeypatch):
    """Stand-ins for the commands of SLURM: ``sbatch`` keeps what it is given, ``sacct`` says what a file says."""
    from s6mod.experiments.launch_slurm import SlurmLauncher, jobs_begun

    scripts = {
        "srun": "",
        "sbatch": f"cp $1 {tmp_path}/told; echo Submitted batch job 12",
        "sacct": f"echo 'JobID|State|NodeList'; cat {tmp_path}/states",
    }
    for name, script in scripts.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    states = tmp_path / "states"
    states.write_text("12_0|FAILED|n1\n12_1|FAILED|n1\n")
    out = tmp_path / "slurm"
    todo = grid.jobs(out)
    launcher = SlurmLauncher.checked(
        out, "cuda", True, 30, ["partition=fast", "--mem-per-gpu=8G"], workers=2, at_once=2, retries=0
    )
    outcome = launcher.launch(todo, log)
    assert list(outcome.failures) == [job.name for job in todo]
    told = (tmp_path / "told").read_text()
    for line in ("array=0-1%2", "time=30", "gpus-per-node=1", "signal=USR2@90", "partition=fast", "mem-per-gpu=8G"):
        assert f"#SBATCH --{line}\n" in told
    assert jobs_begun(out / ".slurm", todo) == []
    states.write_text("12_0|RUNNING|n1\n12_1|COMPLETED|n1\n")
    [(job, pack)] = jobs_begun(out / ".slurm", todo)
    assert job.job_id == "12_0"
    assert [job.name for job in pack.jobs] == [todo[0].name, todo[1].name]
    (tmp_path / "sacct").write_text("#!/bin/sh\necho 'no connection.' >&2; exit 1\n")
    with pytest.raises(ConfigError, match="jobs of an earlier sweep are left, got: no connection; try again"):
        jobs_begun(out / ".slurm", todo)


def test_workers_keep_a_sweep_under_a_limit_of_submissions_and_a_refusal_names_them(tmp_path, grid, log, monkeypatch):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    for name, script in {"srun": "", "sbatch": "echo 'over the limit.' >&2; exit 1"}.items():
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    todo = grid.jobs(tmp_path / "slurm")
    for workers, sent in ((None, len(todo)), (1, 1)):
        with pytest.raises(ConfigError, match=rf"take the jobs \({sent}\), got: .*over the limit; .*--workers"):
            SlurmLauncher(tmp_path / "slurm", gpu=False, workers=workers).launch(todo, log)


def test_what_slurm_refuses_after_it_took_some_is_tried_again(monkeypatch):
    from submitit.core.utils import FailedJobError

    from s6mod.experiments import launch_slurm

    answers = iter([True, False, True, *[False] * (launch_slurm.REFUSALS + 1)])

    class Executor:
        cluster = "slurm"

        def map_array(self, function, packs):
            if not next(answers):
                raise FailedJobError("over the limit.")
            return ["job"] * len(packs)

    monkeypatch.setattr(launch_slurm, "REFUSED_SECONDS", 0.0)
    pool = launch_slurm._SlurmPool(Executor(), 2, 0, 0)
    pool.submit(["a"])
    pool.submit(["b"])
    assert pool.jobs == [("job", "a"), ("job", "b")]
    with pytest.raises(ConfigError, match="got: over the limit; mend"):
        pool.submit(["c"])
    assert next(answers, None) is None


def test_a_suspended_job_is_waited_for(tmp_path, monkeypatch):
    """submitit takes it for ended, and asks no more about a job that has ended."""
    import submitit

    from s6mod.experiments.launch_slurm import _SlurmPool

    states = tmp_path / "states"
    command = tmp_path / "sacct"
    command.write_text(f"#!/bin/sh\necho 'JobID|State|NodeList'; cat {states}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(submitit.SlurmJob, "watcher", type(submitit.SlurmJob.watcher)())
    monkeypatch.setattr(submitit.SlurmJob, "_results_timeout_s", 0)
    job = submitit.SlurmJob(tmp_path, "31")
    pool = _SlurmPool(None, 1, 0, 0, [(job, "pack")])
    for state in ("SUSPENDED", "RUNNING", "SUSPENDED"):
        states.write_text(f"31|{state}|n1\n")
        job.watcher.update()
        assert list(pool.ended()) == []
        assert job.state == state
    states.write_text("31|TIMEOUT|n1\n")
    job.watcher.update()
    assert list(pool.ended()) == [("pack", "job 31 has ended")]


@pytest.mark.parametrize("word", ["partition", "=gpu", "time=60"])
def test_an_option_of_sbatch_that_is_none_is_one_sentence(tmp_path, word):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    with pytest.raises(ConfigError, match="expected an option of sbatch"):
        SlurmLauncher.checked(tmp_path, "cpu", False, 60, [word])


def test_srun_without_sbatch_is_one_sentence(tmp_path, monkeypatch):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    command = tmp_path / "srun"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"expected sbatch beside srun .* got no such command here; start the sweep"):
        SlurmLauncher.checked(tmp_path, "cpu", False, 60, [])


def test_a_refusal_is_told_by_the_lines_that_say_why():
    from s6mod.experiments.launch_slurm import _refused

    said = "ran into an error:\nsbatch: unrecognized option '--x=1'\nTry \"sbatch --help\" for more information\n"
    assert "got: sbatch: unrecognized option '--x=1'; mend" in str(_refused(Exception(said), 1))


@pytest.mark.parametrize(
    ("queue", "ended"), [("echo PENDING", False), ("echo 'Invalid job id specified' >&2; exit 1", True)]
)
def test_a_preempted_job_that_waits_in_the_queue_is_waited_for(tmp_path, monkeypatch, queue, ended):
    """sacct says PREEMPTED of it until it runs again."""
    from s6mod.experiments.launch_slurm import _alive

    command = tmp_path / "squeue"
    command.write_text(f"#!/bin/sh\n{queue}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert _alive("31_4", "PREEMPTED") is not ended


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [("JobState=RUNNING\n PreemptTime=2026-11-18T12:24:40", True), ("JobState=RUNNING\n PreemptTime=None", False),
     ("JobState=CANCELLED\n PreemptTime=2026-11-18T12:24:40", False)],
)  # fmt: skip
def test_a_job_knows_that_it_is_preempted_and_not_cancelled(tmp_path, monkeypatch, shown, wanted):
    from s6mod.experiments.launch_slurm import preempted

    command = tmp_path / "scontrol"
    command.write_text(f'#!/bin/sh\n[ "$3" = 31_4 ] && echo "{shown}"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, value in {"SLURM_ARRAY_JOB_ID": "31", "SLURM_ARRAY_TASK_ID": "4", "SUBMITIT_EXECUTOR": "slurm"}.items():
        monkeypatch.setenv(name, value)
    assert preempted() is wanted
    monkeypatch.delenv("SUBMITIT_EXECUTOR")
    assert not preempted()


@pytest.mark.usefixtures("no_slurm")
def test_a_sweep_that_is_stopped_where_there_is_no_slurm_says_no_traceback(tmp_path, grid, strike, log, capfd):
    from s6mod.experiments.launch_slurm import SlurmLauncher

    out = tmp_path / "slurm"
    todo = grid.jobs(out)[:1]
    stopped = strike(todo[0].folder, signal.SIGTERM, os.getpid())
    outcome = SlurmLauncher(out, gpu=False, workers=1).launch(todo, log)
    assert stopped.struck is not None
    assert outcome.signal == signal.SIGTERM
    time.sleep(2)  # submitit's process says its last word after ours
    assert capfd.readouterr().err == ""
    assert "KeyboardInterrupt" in (out / ".slurm" / "local.log").read_text()
