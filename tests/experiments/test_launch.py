"""Sweeps that fail, are stopped, killed, or meet another sweep."""

import errno
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing import forkserver
from types import SimpleNamespace

import pytest
import torch

import processes
from s6mod.config import merge
from s6mod.experiments import launch
from s6mod.experiments.costs import cores
from s6mod.experiments.launch import LocalLauncher
from s6mod.experiments.progress import SweepDisplay
from s6mod.experiments.sweep import SweepConfig, make_sweep
from s6mod.experiments.worker import Event, run_batch
from s6mod.locks import held
from s6mod.paper.tables import Results, filled
from s6mod.run_files import RunFiles
from s6mod.runs.execute import StopRequest
from s6mod.runs.run import Run
from s6mod.runs.store import scan
from watching import Log

QUICK = {
    "method": {"network": {"width": 2}, "memory_batch": 4},
    "stream": {"tasks": 2, "samples_per_task": 20},
    "output": {"checkpoint_every": 1, "checkpoint_seconds": 0, "log_every": 1, "keep_checkpoint": False},
}
ON_CPU = {"engine": {"device": "cpu"}}
CELLS = ["er", "er+confidence", "er+smoothing"]


def jobs(out, cells, seeds, over=None):
    config = SweepConfig(cells=cells, memory=20, seeds=seeds, set=merge(QUICK, over or {}))
    return make_sweep(config, [], ON_CPU, out, scan([out] if out.exists() else [])).jobs


def batch(found):
    return [(job.config, job.folder) for job in found]


def table(out):
    """All that a table says, but for times and versions."""
    rows = filled("all", Results(scan([out]).finished)).rows
    return [(row.section, row.learner, row.seeds, row.ours, row.gain, row.bytes_held) for row in rows]


# --- a batch, in this process -----------------------------------------------------------------------------------


def test_a_run_that_fails_leaves_its_traceback_and_does_not_stop_the_others(tmp_path, monkeypatch):
    todo = jobs(tmp_path, ["er"], "0-2")
    learn = Run._learn

    def fail(run, ids):
        if run.config.seed == 1 and run.cursor.position == 2:
            raise RuntimeError("a bug of somebody's")
        learn(run, ids)

    monkeypatch.setattr(Run, "_learn", fail)
    events = []
    assert run_batch(batch(todo), None, events.append) is False
    [event] = [event for event in events if event.kind == "failed"]
    assert (event.job, "a bug of somebody's" in event.reason) == (1, True)
    assert "Traceback" in RunFiles(todo[1].folder).failure.read_text()
    assert [(todo[k].folder / "result.json").exists() for k in range(3)] == [True, False, True]
    monkeypatch.undo()
    run_batch(batch(todo[1:2]), None, events.append)  # goes on from its checkpoint, and the mark is gone
    assert {run.status for run in scan([tmp_path]).runs} == {"finished"}
    assert not RunFiles(todo[1].folder).failure.exists()


def test_a_full_disk_is_one_sentence_for_each_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("s6mod.runs.run.write_whole", full)
    monkeypatch.setattr("s6mod.runs.folder.write_whole", full)  # so that not even the traceback finds room
    events = []
    run_batch(batch(jobs(tmp_path, ["er"], "0")), None, events.append)
    [event] = [event for event in events if event.kind == "failed"]
    assert "No space left on device; mend that and try again" in event.reason
    assert "\n" not in event.reason


def test_a_run_that_somebody_has_under_way_is_left_alone(tmp_path):
    [job] = jobs(tmp_path, ["er"], "0")
    other = Run.begin(job.config, job.folder)
    events = []
    run_batch(batch([job]), None, events.append)
    assert [event.kind for event in events] == ["held"]
    assert other.cursor.position == 0


def test_a_gpu_gets_its_share_of_the_runs_on_one_data_set_as_one_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_Worker", lambda device, plan: SimpleNamespace(device=device, batch=[]))
    todo = jobs(tmp_path, ["er/digits,er/cifar10"], "0-4")
    gpus = LocalLauncher(("cuda:0", "cuda:1"))
    sweep = launch._LocalSweep(gpus, todo, Log(), StopRequest())
    batches = [sweep._next_batch("cuda:0") for _ in range(6)]
    assert [len(batch) for batch in batches] == [3, 1, 1, 3, 1, 1]
    assert [len({job.config.data.name for job in batch}) for batch in batches] == [1] * 6
    assert [job for batch in batches for job in batch] == todo


def test_a_batch_that_a_worker_cannot_read_fails_whole_with_the_reason_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_Worker", lambda device, plan: SimpleNamespace(device=device, batch=[], lost=set()))
    todo = jobs(tmp_path, ["er/digits"], "0-2")
    sweep = launch._LocalSweep(LocalLauncher(("cuda:0",)), todo, Log(), StopRequest())
    worker = SimpleNamespace(batch=todo, lost=set())
    sweep._event(worker, Event("refused", reason="nobody knows it"))
    assert sweep.outcome.failures == dict.fromkeys([job.name for job in todo], "nobody knows it")
    assert worker.lost == {0, 1, 2}


# --- processes --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_start")
def test_a_worker_is_forked_with_all_that_a_run_takes_long_to_import(tmp_path):
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    context.Process(target=processes.work_and_tell_imports, args=(theirs, batch(jobs(tmp_path, ["er"], "0")))).start()
    theirs.close()
    assert len(ours.recv()) < 20  # of some 1800 otherwise
    assert list(tmp_path.glob("*/result.json"))


@pytest.mark.usefixtures("quick_start")
def test_two_sweeps_over_the_same_runs_share_them_and_failures_are_tried_again(tmp_path):
    """This process has one run under way; another run is damaged; a launcher is to do both and a third."""
    todo = jobs(tmp_path, ["er"], "0-2")
    mine = Run.begin(todo[0].config, todo[0].folder)
    todo[1].folder.mkdir()
    (todo[1].folder / "config.json").write_text("{")

    class Generous(Log):
        def done(self, job):
            super().done(job)
            self.give()

        def say(self, text):
            super().say(text)
            self.give()

        def give(self):
            if self.ended and any("another process" in text for text in self.said):
                mine.close()  # unfinished: the launcher, which waits for it, may have it now

    log = Generous()
    outcome = LocalLauncher(("cpu", "cpu"), retries=1).launch(todo, log)
    assert sorted(log.ended) == [todo[0].name, todo[2].name]
    assert log.failures == [(todo[1].name, True), (todo[1].name, False)]
    assert list(outcome.failures) == [todo[1].name]
    assert "damaged" in outcome.failures[todo[1].name]
    assert any("another process" in text for text in log.said)


@pytest.mark.usefixtures("quick_start")
def test_a_damaged_result_is_a_failure_of_its_run(tmp_path, call):
    file, out = tmp_path / "grid.yaml", tmp_path / "runs"
    file.write_text(json.dumps({"cells": ["er"], "memory": 20, "seeds": "0-1", "set": QUICK}))
    whole, damaged = jobs(out, ["er"], "0-1")
    run_batch(batch([whole]), None, lambda event: None)
    damaged.folder.mkdir()
    (damaged.folder / "result.json").write_text('{"format": 1, "ha')
    code, shown, err = call("sweep", file, "--out", out, "--device", "cpu", "--workers", 1)
    assert (code, "1/1 done" in shown) == (1, False)
    assert f"failed: {damaged.name}: expected the result of a run" in err
    assert "result.json; remove it" in err
    (damaged.folder / "result.json").unlink()
    assert call("sweep", file, "--out", out, "--device", "cpu", "--workers", 1)[0] == 0


LONG = {"stream": {"samples_per_task": 200}, "output": {"checkpoint_every": 1000}}


class Striking(Log):
    """Once all runs have begun, tells processes to end."""

    def __init__(self, runs, strike):
        super().__init__()
        self.runs, self.strike, self.struck = runs, strike, False

    def progress(self, job, step, steps):
        super().progress(job, step, steps)
        if not self.struck and len({name for name, *_ in self.steps}) == self.runs:
            self.struck = True
            self.strike([process.pid for process in multiprocessing.active_children()])


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_every_run_saves_its_state_when_the_whole_group_is_told_to_end(tmp_path, number):
    def strike(workers):
        server = forkserver._forkserver._forkserver_pid  # of the group, too; it takes long to start again
        for process in (*workers, *[server] * (number == signal.SIGTERM), os.getpid()):
            os.kill(process, number)

    todo = jobs(tmp_path, ["er"], "0-1", LONG)
    before = signal.signal(number, signal.SIG_DFL)  # these tests may run under nohup
    try:
        outcome = LocalLauncher(("cpu", "cpu")).launch(todo, Striking(2, strike))
    finally:
        signal.signal(number, before)
    assert (outcome.signal, outcome.failures) == (number, {})
    assert [(job.folder / "checkpoint" / "state.json").exists() for job in todo] == [True, True]


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("retries", [0, 1])
def test_a_run_whose_worker_somebody_told_to_stop_has_failed(tmp_path, retries):
    todo = jobs(tmp_path, ["er"], "0-1", LONG)
    log = Striking(1, lambda workers: os.kill(workers[0], signal.SIGTERM))
    outcome = LocalLauncher(("cpu",), retries=retries).launch(todo, log)
    assert log.failures == [(todo[0].name, bool(retries))]
    assert "told to stop" in log.reasons[0]
    assert sorted(log.ended) == [job.name for job in todo][1 - retries :]
    assert list(outcome.failures) == [todo[0].name][: 1 - retries]


def test_workers_are_as_many_as_the_cores_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert len(LocalLauncher.here("auto", None, None, 0).devices) == 3
    assert LocalLauncher.here("cpu", 1, None, 0).threads == 3
    monkeypatch.delattr("os.sched_getaffinity")
    assert len(LocalLauncher.here("auto", None, None, 0).devices) == 64


def wait_for(condition, process=None):
    deadline = time.monotonic() + 300
    while not condition() and (process is None or process.is_alive()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_a_stop_that_meets_a_worker_between_two_batches_is_told_in_words_too(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "work", processes.miss_the_signal)
    request = StopRequest()
    request.number = signal.SIGTERM
    sweep = launch._LocalSweep(LocalLauncher(("cpu",)), jobs(tmp_path, ["er"], "0"), Log(), request)
    [worker] = sweep.workers
    assert worker.connection.recv() == "ready"
    sweep.work()
    assert worker.process.exitcode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and locks as on Linux")
@pytest.mark.usefixtures("quick_start")
def test_a_grid_of_24_runs_stopped_twice_and_killed_once_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, call):
    grid, out = tmp_path / "grid.json.yaml", tmp_path / "runs"
    grid.write_text(json.dumps({"cells": CELLS, "memory": 20, "seeds": "0-7", "set": QUICK}))
    sweep = ["sweep", grid, "--out", out, "--workers", 2, "--device", "cpu"]

    def results():
        return {file.parent.name: file.read_bytes() for file in out.glob("*/result.json")}

    def stop():
        """Ctrl-C when four runs have come to their end."""
        done, ends = SweepDisplay.done, itertools.count(1)

        def done_and_stop(display, job):
            done(display, job)
            if next(ends) == 4:
                signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(SweepDisplay, "done", done_and_stop)
            code, _, err = call(*sweep)
        assert code == 130, err

    def kill():
        process = processes.start(*sweep)
        before = len(results())
        wait_for(lambda: len(results()) >= before + 4, process)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL

    seen: dict[str, bytes] = {}
    for interrupt in (stop, kill, stop):
        interrupt()
        # Workers that nobody waits for any more save their state and go.
        wait_for(lambda: not any(held(folder) for folder in out.iterdir()))
        now = results()
        assert len(seen) < len(now) < 24
        assert all(now[name] == content for name, content in seen.items())
        seen = now
    code, _, err = call(*sweep)
    assert code == 0, err
    ended = results()
    assert len(ended) == 24
    assert all(ended[name] == content for name, content in seen.items())  # no run came to its end twice
    assert {run.status for run in scan([out]).runs} == {"finished"}

    straight = tmp_path / "straight"
    torch.set_num_threads(max(cores() // 2, 1))  # as each of two workers has, since sums depend on it
    try:
        run_batch(batch(jobs(straight, CELLS, "0-7")), None, lambda event: None)
    finally:
        torch.set_num_threads(1)
    assert table(out) == table(straight)
    for folder in straight.iterdir():
        assert (out / folder.name / "records.jsonl").read_text() == (folder / "records.jsonl").read_text()
