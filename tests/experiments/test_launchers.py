"""Sweeps on clusters, with pools that are not there: what is packed, sent again, waited for, watched and refused."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from s6mod.config import merge
from s6mod.errors import ConfigError
from s6mod.experiments import cluster, follow
from s6mod.experiments.cluster import ClusterSweep, Report, make_packs
from s6mod.experiments.costs import cost
from s6mod.experiments.follow import Follower, Onlooker
from s6mod.experiments.launch_ray import RayLauncher, gpu_share
from s6mod.experiments.launch_slurm import PackJob, SlurmLauncher, _SlurmPool
from s6mod.experiments.sweep import SweepConfig, make_sweep
from s6mod.run_files import RunFiles
from s6mod.runs.execute import StopRequest
from s6mod.runs.run import Run
from s6mod.runs.store import scan
from watching import Log

QUICK = {
    "method": {"network": {"width": 2}, "memory_batch": 4},
    "stream": {"tasks": 2, "samples_per_task": 20},
    "output": {"log_every": 1, "keep_checkpoint": False},
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    monkeypatch.setattr(follow, "PATIENCE", 0.0)


def jobs(out, cells, seeds, over=None):
    config = SweepConfig(cells=cells, seeds=seeds, set=over or {})
    return make_sweep(config, [], {}, out, scan([out] if out.exists() else [])).jobs


def quick(out, seeds="0", over=None):
    return jobs(out, ["er"], seeds, merge(QUICK, over or {}))


class FakePool:
    """Runs nothing; what becomes of each pack is the next entry of a script, and after its end every pack is done."""

    room, retries, deaths = 2, 1, 2

    def __init__(self, *script, begun=()):
        self.script, self.sent, self.away, self.stopped = list(script), [], list(begun), False
        self.begun = begun

    def submit(self, packs):
        self.sent.append([[job.name for job in pack.jobs] for pack in packs])
        self.away += packs
        assert len(self.away) <= self.room

    def ended(self):
        while self.away:
            yield self.away.pop(0), self.script.pop(0) if self.script else Report({})

    def stop(self):
        self.stopped = True


def sweep(pool, packs, request=None):
    log = Log()
    return ClusterSweep(pool, packs, log, request or StopRequest()).work(), log


# --- what becomes of packs --------------------------------------------------------------------------------------


def test_a_pool_gets_no_more_than_it_has_room_for(tmp_path):
    todo = quick(tmp_path, "0-4")
    pool = FakePool()
    outcome, log = sweep(pool, make_packs(todo, None))
    assert [len(sent) for sent in pool.sent] == [2, 2, 1]
    assert sorted(log.ended) == sorted(job.name for job in todo)
    assert (outcome.failures, outcome.signal) == ({}, None)


def test_dead_workers_and_failed_runs_are_counted_apart_and_tried_again_so_often(tmp_path):
    [job] = quick(tmp_path)
    outcome, log = sweep(FakePool("gone", Report({0: "bug"}), "gone"), make_packs([job], None))
    assert log.failures == [(job.name, True)] * 3
    assert log.ended == [job.name]
    assert outcome.failures == {}
    outcome, log = sweep(FakePool("gone", "gone", "gone"), make_packs([job], None))
    assert [again for _, again in log.failures] == [True, True, False]
    assert outcome.failures == {job.name: "its worker is gone: gone"}
    outcome, log = sweep(FakePool(Report({0: "bug"}), Report({0: "bug"})), make_packs([job], None))
    assert outcome.failures == {job.name: "bug"}


def test_of_a_pack_only_what_failed_is_sent_again(tmp_path):
    todo = jobs(tmp_path, ["er/cifar100"], "0-2")
    pool = FakePool(Report({1: "bug"}, warnings=("mind this",)))
    _, log = sweep(pool, make_packs(todo, 1))
    assert pool.sent == [[[job.name for job in todo]], [[todo[1].name]]]
    assert sorted(log.ended) == [job.name for job in todo]
    assert log.said == ["warning: mind this"]


def test_a_run_that_somebody_else_has_is_looked_at_again_later(tmp_path):
    [job] = quick(tmp_path)
    pool = FakePool(Report({}, held=frozenset([0])))
    _, log = sweep(pool, make_packs([job], None))
    assert len(pool.sent) == 2
    assert log.ended == [job.name]
    assert log.failures == []
    assert "another process" in log.said[0]


def test_what_an_earlier_sweep_sent_is_waited_for_and_what_it_left_undone_is_sent_again(tmp_path):
    old, new = make_packs(quick(tmp_path, "0-1"), None)
    pool = FakePool("job 7 has ended", begun=[old])
    _, log = sweep(pool, [new])
    assert pool.sent == [[[new.jobs[0].name]], [[old.jobs[0].name]]]
    assert log.ended == [new.jobs[0].name, old.jobs[0].name]


def test_a_signal_stops_the_pool(tmp_path):
    request = StopRequest()
    request.number = signal.SIGINT
    pool = FakePool()
    outcome, _ = sweep(pool, make_packs(quick(tmp_path), None), request)
    assert pool.stopped
    assert pool.sent == []
    assert outcome.signal == signal.SIGINT


def test_a_damaged_result_is_a_failure_wherever_it_is_met(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "QUIET", 0.0)
    [job] = quick(tmp_path)
    job.folder.mkdir()
    for text in ("", "{", "{}"):
        (job.folder / "result.json").write_text(text)
        RunFiles(job.folder).failure.unlink(missing_ok=True)
        log = Log()
        outcome = Onlooker().launch([job], log)
        assert (log.ended, log.failures) == ([], [(job.name, False)])
        assert "result.json; remove it" in outcome.failures[job.name]
        [pack] = make_packs([job], None)
        assert "result.json; remove it" in pack.run().failures[0]


# --- packs ------------------------------------------------------------------------------------------------------


def test_on_cpus_runs_travel_alone_and_paths_hold_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    todo = jobs(tmp_path.relative_to(tmp_path), ["er"], "0-2", {"data": {"root": "sets"}})
    packs = make_packs(todo, None)
    assert [len(pack.jobs) for pack in packs] == [1, 1, 1]
    job = packs[0].jobs[0]
    assert job.folder == tmp_path / todo[0].folder
    assert job.config.data.root == str(tmp_path / "sets")
    assert job.config.engine.device == "cpu"
    assert job.config.hash == todo[0].config.hash


def test_the_data_folder_of_the_environment_travels_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [todo] = quick(tmp_path)
    monkeypatch.delenv("S6MOD_DATA", raising=False)
    assert make_packs([todo], None)[0].jobs[0].config.data.root is None
    monkeypatch.setenv("S6MOD_DATA", "sets")
    config = make_packs([todo], None)[0].jobs[0].config
    assert config.data.root == str(tmp_path / "sets")
    assert config.hash == todo.config.hash
    [said] = quick(tmp_path, over={"data": {"root": "/own"}})
    assert make_packs([said], None)[0].jobs[0].config.data.root == "/own"


def test_on_gpus_seeds_of_a_cell_go_together_and_every_gpu_gets_some(tmp_path):
    todo = jobs(tmp_path, ["er/cifar100,ocm/cifar100"], "0-9")
    packs = make_packs(todo, 2)
    assert [len(pack.jobs) for pack in packs] == [5, 5, 5, 5]
    assert all(len({job.config.cell for job in pack.jobs}) == 1 for pack in packs)
    assert {job.config.engine.device for pack in packs for job in pack.jobs} == {"cuda"}
    assert [len(pack.jobs) for pack in make_packs(todo, 40)] == [1] * 20
    assert [len(pack.jobs) for pack in make_packs(todo, 2, at_once=3)] == [3, 3, 2, 2] * 2


def test_the_share_of_a_gpu_is_by_memory_and_no_more_than_eight_share_one(tmp_path):
    er, ocm = (make_packs(jobs(tmp_path, [f"{name}/cifar100"], "0"), 9)[0] for name in ("er", "ocm"))
    assert gpu_share(er, 141) == 0.125
    assert gpu_share(er, 2.15) == 0.25  # 0.43 GiB of 0.8 times 2.15
    needed = cost(ocm.jobs[0].config.plain()).memory_gib
    assert gpu_share(ocm, 3 * needed) == round(1 / 2.4, 4)
    assert gpu_share(make_packs(jobs(tmp_path, ["ocm/cifar100"], "0-7"), 1)[0], 3 * needed) == 1.0


def test_checkpoints_come_every_two_minutes_unless_said(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    [fast, slow] = jobs(tmp_path, ["er/cifar100,onpro-ccldc/tiny-imagenet"], "0")
    assert cluster.checkpoint_steps(fast, "cuda", 8) == 1000  # 25 seconds: the usual number of steps
    assert 20 < cluster.checkpoint_steps(slow, "cuda", 8) < 100
    assert 35 < cluster.checkpoint_steps(fast, "cpu", 1) < 45  # 3.0 seconds a step on one core
    [said] = jobs(tmp_path, ["er/cifar100"], "0", {"output": {"checkpoint_every": 700}})
    assert make_packs([said], None)[0].jobs[0].config.output.checkpoint_every == 700


def test_a_pack_is_taken_to_its_end_and_tells_what_failed(tmp_path, monkeypatch):
    todo = quick(tmp_path, "0-1")
    todo[0].folder.mkdir()
    (todo[0].folder / "config.json").write_text("{")
    packs = make_packs(todo, None)
    monkeypatch.setattr("sys.argv", ["worker.py", "--secret"])
    assert "damaged" in packs[0].run().failures[0]
    assert packs[1].run() == Report({})
    assert "--secret" not in (todo[1].folder / "config.json").read_text()


# --- SLURM jobs, as submitit shows them -------------------------------------------------------------------------


class EndedJob:
    """A job of submitit that has ended with a report."""

    state = "COMPLETED"

    def __init__(self, number, report):
        self.job_id, self.report = number, report
        self.paths = SimpleNamespace(result_pickle=Path("none"), stderr="log")

    def done(self):
        return True

    def exception(self):
        return None

    def result(self):
        return self.report


def test_the_folders_tell_of_a_job_of_an_earlier_sweep_and_the_report_of_the_equal_pack_sent_after_it(tmp_path):
    [pack] = make_packs(quick(tmp_path), None)
    pool = _SlurmPool(None, 1, 0, 0, [(EndedJob("7", Report({3: "of another run"})), pack)])
    assert list(pool.ended()) == [(pack, "job 7 has ended")]
    pool.jobs.append((EndedJob("8", Report({0: "bug"})), pack))
    assert list(pool.ended()) == [(pack, Report({0: "bug"}))]
    assert pool.jobs == []


# --- a SLURM job that comes to its time limit -------------------------------------------------------------------


def test_before_its_time_limit_a_job_saves_at_the_end_of_a_step_and_is_queued_again(tmp_path, monkeypatch):
    [pack] = make_packs(quick(tmp_path), None)
    checkpoint = pack.jobs[0].folder / "checkpoint" / "state.json"
    learn = Run._learn

    def limited(run, ids):
        if run.cursor.position == 2:
            signal.raise_signal(signal.SIGUSR2)
        learn(run, ids)

    queued = []

    def requeue(number, frame):
        queued.append(checkpoint.exists())
        raise SystemExit

    monkeypatch.setattr(Run, "_learn", limited)
    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit):
            PackJob()(pack)
        monkeypatch.undo()
        assert queued == [True]
        with Run.resume(pack.jobs[0].folder) as resumed:
            assert resumed.cursor.position == 3
        signal.signal(signal.SIGUSR2, requeue)
        assert PackJob()(pack) == Report({})
        with pytest.raises(SystemExit):  # no run is under way: straight back to the queue
            signal.raise_signal(signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)


# --- watching ---------------------------------------------------------------------------------------------------


def test_a_follower_tells_steps_and_the_end_once_and_sees_a_run_go_back(tmp_path):
    [job] = quick(tmp_path)
    log = Log()
    follower = Follower([job], log)
    follower.look()  # not begun
    assert log.steps == []
    run = Run.begin(job.config, job.folder)
    steps = run.steps()
    next(steps), next(steps)
    follower.look()
    follower.look()
    assert log.steps == [(job.name, 2, 4)]
    records = job.folder / "records.jsonl"
    records.write_bytes(records.read_bytes().splitlines(keepends=True)[0] + b'{"step": 2, "ki')
    follower.look()
    assert log.steps[-1] == (job.name, 1, 4)
    for _ in steps:
        pass
    follower.look()
    follower.look()
    follower.end(job)
    assert log.ended == [job.name]


def test_an_onlooker_watches_until_all_have_ended_or_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "QUIET", 0.0)
    todo = quick(tmp_path, "0-1")
    make_packs(todo[:1], None)[0].run()
    todo[1].folder.mkdir()
    RunFiles(todo[1].folder).failure.write_text("Traceback\n  ...\nRuntimeError: a bug of somebody's\n")
    log = Log()
    outcome = Onlooker().launch(todo, log)
    assert log.ended == [todo[0].name]
    assert log.failures == [(todo[1].name, False)]
    assert outcome.failures == {todo[1].name: "RuntimeError: a bug of somebody's"}


def test_a_second_terminal_attaches_with_the_same_words(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    words = ["er", "--seeds", "0", "--set", "stream={tasks: 2, samples_per_task: 20}", "--out", tmp_path / "runs"]
    monkeypatch.setattr(follow, "PATIENCE", 0.01)
    [job] = jobs(tmp_path / "runs", ["er"], "0", {"stream": QUICK["stream"]})
    look = Follower.look

    def look_and_work(follower):
        look(follower)
        if follower.open:
            make_packs([job], None)[0].run()  # meanwhile, elsewhere

    monkeypatch.setattr(Follower, "look", look_and_work)
    code, out, err = call("sweep", *words, "--attach")
    assert code == 0, err
    assert f"1/1 done: {job.name}" in out
    assert "All results" in out


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--on", "slurm", "--address", "auto"], "expected --address with --on ray"),
        (["--sbatch", "partition=gpu"], "with --on slurm"),
        (["--on", "ray", "--time-limit", "60"], "with --on slurm"),
    ],
)
def test_options_of_another_place_are_refused(tmp_path, monkeypatch, call, words, hint):
    monkeypatch.chdir(tmp_path)
    code, _, err = call("sweep", "er", *words)
    assert (code, hint in err, err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("extra", ["ray", "slurm"])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, call, extra):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = call("sweep", "er", "--on", extra)
    assert (code, err.count("\n")) == (2, 1)
    assert f"pip install -e '.[{extra}]'" in err


def test_a_cluster_chooses_the_gpu(monkeypatch):
    with pytest.raises(ConfigError, match="auto, cpu or cuda"):
        cluster.wants_gpu("cuda:1")
    assert [cluster.wants_gpu(device) for device in ("auto", "cpu", "cuda")] == [None, False, True]
    assert RayLauncher(None).on_cpu
    assert not SlurmLauncher("runs", gpu=True).on_cpu
