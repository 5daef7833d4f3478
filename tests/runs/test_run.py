import errno
import json
import os
import random
import signal
import threading
import time
import warnings
import weakref
from contextlib import contextmanager, nullcontext

import fakes
import pytest
from states import assert_same_tree, write_state

import processes
from records import records_of
from s6mod.analysis.opened import open_run
from s6mod.config import merge
from s6mod.data import Dataset, StreamPlan
from s6mod.engine import checkpoint
from s6mod.engine.checkpoint import Snapshot, StateWriter, read_state
from s6mod.engine.evaluate import Predictor
from s6mod.errors import CheckpointError, ConfigError
from s6mod.learner import Learner
from s6mod.locks import held
from s6mod.runs import execute as module_execute
from s6mod.runs.config import RunConfig
from s6mod.runs.execute import Interrupted, execute
from s6mod.runs.name import run_hash
from s6mod.runs.run import Run

assert fakes.Duo  # registers the method "duo"

QUICK = {
    "method": {"name": "er", "network": {"width": 4}, "memory_batch": 16},
    "memory_size": 50,
    "stream": {"tasks": 3, "samples_per_task": 50},
    "output": {"log_every": 4, "checkpoint_every": 5, "checkpoint_seconds": 0},
}
S6MOD = {"branch": {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4, "dt_rank": 3}}


def quick(**over):
    return RunConfig.parse(merge(QUICK, over))


def start(config, folder, dataset, watch=None):
    return execute([lambda: Run.begin(config, folder, dataset, watch)])[0]


def finish(folder, dataset, watch=None):
    return execute([lambda: Run.resume(folder, dataset, watch)])[0]


def state(folder):
    tree, _ = read_state(folder / "checkpoint")
    for clock in ("seconds", "eval_seconds", "runs_at_once"):
        del tree["cursor"][clock]
    return tree


def test_what_a_run_has_trained_is_a_learner(tmp_path, digits):
    result = start(quick(**S6MOD), tmp_path / "r", digits)
    learner = Learner.load(tmp_path / "r")
    guesses = learner.scores(digits.test_images)["head"].argmax(1)
    hits = [(guesses == digits.test_labels)[digits.test_labels == label].sum().item() for label in range(10)]
    counts = next(record["counts"] for record in records_of(tmp_path / "r") if record["kind"] == "confusion")
    assert hits == [counts[label][label] for label in range(10)]
    assert learner.steps == result["steps"]
    learner.learn(digits.train_images[:10], digits.train_labels[:10])  # and it goes on


def test_a_run_writes_its_folder(tmp_path, digits):
    result = start(quick(**S6MOD), tmp_path / "r", digits)
    assert {p.name for p in (tmp_path / "r").iterdir()} == {
        "config.json", "stream.safetensors", "records.jsonl", "checkpoint", "result.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "r" / "result.json").read_text()) == result
    matrix = result["matrices"]["head"]
    assert [len(row) for row in matrix] == [1, 2, 3]
    assert result["metrics"]["head"]["accuracy"] == pytest.approx(sum(matrix[-1]) / 3)
    assert result["metrics"].keys() == {"head", "ncm", "branch"}
    assert result["steps"] == 15
    assert result["ms_per_step"] > 0
    assert result["bytes_held"] > 50 * 3 * 16 * 16
    logged = records_of(tmp_path / "r")
    assert [r["step"] for r in logged if r["kind"] == "task"] == [5, 10, 15]
    steps = [r for r in logged if r["kind"] == "step"]
    assert [r["step"] for r in steps] == [4, 5, 8, 10, 12, 15]
    assert steps[0]["terms"].keys() == {"ce", "branch/dr", "branch/diff", "branch/cont", "branch/z"}
    assert len(steps[0]["figures"]["pattern_load"]) == 3
    assert steps[0]["figures"]["mean_patterns"] >= 1


def test_the_last_record_but_one_says_what_was_taken_for_what(tmp_path, digits):
    result = start(quick(num_classes=12), tmp_path / "r", digits)
    [record] = [record for record in records_of(tmp_path / "r") if record["kind"] == "confusion"]
    counts = record["counts"]
    assert [len(row) for row in counts] == [12] * 12
    assert [sum(row) for row in counts] == digits.test_labels.bincount(minlength=12).tolist()
    for classes, accuracy in zip(record["classes"], result["matrices"]["head"][-1], strict=True):
        hits, images = sum(counts[c][c] for c in classes), sum(sum(counts[c]) for c in classes)
        assert 100 * hits / images == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("over", "weights", "chosen"),
    [({}, ("latest",), "latest/running/"), (S6MOD | {"average": 0.9}, ("latest", "averaged"), "averaged/running/")],
)
def test_at_its_end_a_run_has_scored_all_that_could_predict(tmp_path, digits, over, weights, chosen):
    result = start(quick(**over), tmp_path / "r", digits)
    tables = ["head", "ncm", *(["branch"] if over else [])]
    ways = [f"{w}/{s}" for w in weights for s in ("running", "memory")]
    assert list(result["predictors"]) == [f"{way}/{table}" for way in ways for table in (*tables, "ensemble")]
    assert list(result["matrices"]) == tables
    for table in tables:
        assert result["predictors"][chosen + table] == result["matrices"][table][-1]
    learner = Learner.load(tmp_path / "r")
    guesses = learner.scores_by_all(digits.test_images)
    plan = StreamPlan.load(tmp_path / "r" / "stream.safetensors")
    for name, accuracies in result["predictors"].items():
        hits = guesses[name].argmax(1).cpu() == digits.test_labels
        for classes, accuracy in zip(plan.task_classes, accuracies, strict=True):
            rows = sum(digits.test_labels == label for label in classes).bool()
            assert accuracy == pytest.approx(100 * hits[rows].double().mean().item())


def test_what_a_run_predicts_by_is_in_its_tables_and_the_rest_need_not_be_scored(tmp_path, digits):
    over = {"predict_by": "ensemble", "statistics": "memory", "predict_among": "seen"}
    scored = start(quick(**over), tmp_path / "scored", digits)
    silent = start(quick(**over, output={"predictors": False}), tmp_path / "silent", digits)
    assert "predictors" not in silent
    assert scored["predictors"]["latest/memory/ensemble"] == scored["matrices"]["ensemble"][-1]
    assert (scored["primary"], scored["hash"]) == ("ensemble", silent["hash"])
    assert scored["matrices"] == silent["matrices"]
    assert records_of(tmp_path / "scored") == records_of(tmp_path / "silent")
    assert read_state(tmp_path / "silent" / "checkpoint")[0]["cursor"]["predictors"] == {}


def test_averaged_weights_that_are_kept_beside_change_nothing_that_is_reported(tmp_path, digits):
    plain = start(quick(), tmp_path / "plain", digits)
    averaged = start(quick(average=0.9), tmp_path / "averaged", digits)
    beside = quick(output={"average": 0.9})
    both = start(beside, tmp_path / "both", digits)
    for same in ("hash", "matrices", "metrics", "bytes_held"):
        assert both[same] == plain[same]
    assert both["predictors"] == averaged["predictors"]
    assert Learner.load(tmp_path / "both").config.weights == "latest"


def test_a_run_that_was_begun_without_them_goes_on_without_them(tmp_path, digits):
    def stop(progress):
        if progress.step >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(quick(), tmp_path / "r", digits, stop)
    with Run.open(quick(output={"average": 0.9}), tmp_path / "r", digits) as run:
        [result] = execute([lambda: run])
    assert not [name for name in result["predictors"] if name.startswith("averaged")]


@pytest.mark.parametrize(
    "over", [{}, S6MOD, {"method": {"name": "duo", "network": {"width": 4}}}, {"average": 0.9, "statistics": "memory"}]
)
def test_a_run_stopped_by_a_signal_goes_on_to_the_same_bits(tmp_path, digits, over):
    start(quick(**over), tmp_path / "straight", digits)
    folder = tmp_path / "stopped half way"

    for stop_at in (3, 7, 12):

        def ask(progress, at=stop_at):
            if progress.step >= at:
                signal.raise_signal(signal.SIGTERM)

        with pytest.raises(Interrupted, match=f"SIGTERM; go on with: s6mod train --resume '{folder}'$"):
            finish(folder, digits, ask) if folder.exists() else start(quick(**over), folder, digits, ask)
        assert not (folder / "result.json").exists()
    finish(folder, digits)

    assert_same_tree(state(tmp_path / "straight"), state(folder))
    assert records_of(tmp_path / "straight") == records_of(folder)


def test_a_run_begun_before_a_field_was_there_goes_on_with_its_default(tmp_path, digits):
    branch = {"name": "s6mod", "d_inner": 12, "num_patterns": 3, "state_dim": 4}
    config = quick(branch=branch, output={"log_every": 4, "checkpoint_every": 4})
    start(config, tmp_path / "straight", digits)
    folder = tmp_path / "older"
    with pytest.raises(Interrupted):
        start(config, folder, digits, lambda progress: signal.raise_signal(signal.SIGTERM))

    content = json.loads((folder / "config.json").read_text())
    del content["config"]["branch"]["variant"]
    content["hash"] = run_hash(content["config"])
    assert content["hash"] != config.hash
    (folder / "config.json").write_text(json.dumps(content))
    tree, header = read_state(folder / "checkpoint")
    write_state(folder / "checkpoint", tree, header | {"hash": content["hash"]})

    with pytest.raises(Interrupted):
        finish(folder, digits, lambda progress: signal.raise_signal(signal.SIGTERM))
    result = finish(folder, digits)
    assert result["hash"] == config.hash
    assert_same_tree(state(tmp_path / "straight"), state(folder))
    assert open_run(folder, "cpu").config.hash == config.hash


@pytest.mark.parametrize(
    ("written", "why"),
    [("", "damaged"), ("{}", "damaged"), ("[]", "damaged"), ("[" * 100_000, "damaged"), (None, "was edited")],
)
def test_a_run_whose_configuration_is_not_the_one_it_began_with_does_not_go_on(tmp_path, digits, written, why):
    config = quick()
    with pytest.raises(Interrupted):
        start(config, tmp_path / "run", digits, lambda progress: signal.raise_signal(signal.SIGTERM))
    file = tmp_path / "run" / "config.json"
    content = json.loads(file.read_text())
    content["config"]["output"]["log_every"] += 1
    content["config"]["method"]["optimizer"]["lr"] *= 2
    file.write_text(json.dumps(content) if written is None else written)
    with pytest.raises(CheckpointError, match=why):
        Run.resume(tmp_path / "run", digits, config=config)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    """A real child process, killed by force at random moments, resumed each time."""
    options = [f"--set={line}" for line in (
        "method.network.width=4", "method.memory_batch=16", "stream.samples_per_task=50", "stream.tasks=5",
        "memory_size=50", "output.checkpoint_every=2", "output.checkpoint_seconds=0", "output.log_every=3",
        "branch.d_inner=12", "branch.num_patterns=3", "branch.state_dim=4",
    )]  # fmt: skip
    fresh = ["train", "--branch", "s6mod", "--quiet", *options]
    straight = processes.start(*fresh, "--out", tmp_path / "straight")
    straight.join()
    assert straight.exitcode == 0

    folder = tmp_path / "killed"
    rng = random.Random(0)
    kills = 0
    while not (folder / "result.json").exists():
        begun = (folder / "config.json").exists()
        child = processes.start(*(["train", "--resume", folder] if begun else [*fresh, "--out", folder]))
        if kills < 4:
            newest = folder / "checkpoint" / "state.json"
            before = newest.stat().st_mtime_ns if newest.exists() else 0
            while child.is_alive() and (not newest.exists() or newest.stat().st_mtime_ns == before):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.2))
            child.kill()
            kills += 1
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL)
    assert kills >= 2
    assert_same_tree(state(tmp_path / "straight"), state(folder))
    assert records_of(tmp_path / "straight") == records_of(folder)
    a, b = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("straight", "killed"))
    for key in ("matrices", "metrics", "hash", "stream"):
        assert a[key] == b[key], key


def test_several_runs_give_what_each_gives_alone(tmp_path, digits):
    configs = [quick(), quick(seed=1), quick(**S6MOD)]
    together = execute(
        [lambda config=config: Run.begin(config, tmp_path / "together" / config.hash, digits) for config in configs]
    )
    for config, result in zip(configs, together, strict=True):
        alone = start(config, tmp_path / "alone" / config.hash, digits)
        assert result["matrices"] == alone["matrices"]
        assert_same_tree(state(tmp_path / "together" / config.hash), state(tmp_path / "alone" / config.hash))


@pytest.mark.parametrize(("runs", "set_before", "expected"), [(1, None, None), (2, None, "8"), (2, "3", "3")])
def test_several_runs_ask_for_a_work_queue_each_unless_the_user_has_said_how_many(
    runs, set_before, expected, monkeypatch
):
    """With fewer queues than streams, runs side by side on a GPU would wait for each other."""
    name, seen = "CUDA_DEVICE_MAX_CONNECTIONS", []
    monkeypatch.setenv(name, set_before or "")
    if set_before is None:
        monkeypatch.delenv(name)

    def make():
        seen.append(os.environ.get(name))  # CUDA may be begun with from here on
        raise RuntimeError("not today")

    execute([make] * runs, failed=lambda number, error: None)
    assert seen == [expected] * runs


def test_a_checkpoint_that_is_not_to_be_kept_is_gone_at_the_end(tmp_path, digits):
    start(quick(output={"keep_checkpoint": False}), tmp_path / "r", digits)
    assert not (tmp_path / "r" / "checkpoint").exists()


def test_a_run_that_cannot_write_its_result_can_still_go_on(tmp_path, digits, monkeypatch):
    from s6mod.runs import run as module

    write = module.write_whole

    def full(path, content):
        if path.name == "result.json":
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(module, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        start(quick(output={"keep_checkpoint": False}), tmp_path / "r", digits)
    monkeypatch.undo()
    with Run.resume(tmp_path / "r", digits) as run:
        assert run.cursor.position == 15
    assert finish(tmp_path / "r", digits)["steps"] == 15


@pytest.mark.parametrize(("keep", "full_from"), [(True, 15), (False, 10)])
def test_a_state_that_finds_no_room_does_not_cost_a_run_at_its_end_the_result(
    tmp_path, digits, monkeypatch, keep, full_from
):
    config = quick(output={"keep_checkpoint": keep, "checkpoint_every": 10})
    expected = start(config, tmp_path / "straight", digits)
    save = Run.checkpoint

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    def save_while_there_is_room(run, beside=False):
        if run.cursor.position >= full_from:
            monkeypatch.setattr(checkpoint, "write_whole", full)
        save(run, beside)

    monkeypatch.setattr(Run, "checkpoint", save_while_there_is_room)
    with pytest.warns(UserWarning, match="final state .* disk is full") if keep else nullcontext():
        result = start(config, tmp_path / "r", digits)
    assert result["matrices"] == expected["matrices"]
    if keep:
        assert Learner.load(tmp_path / "r").steps == 10  # the state of an earlier step is still there
    assert finish(tmp_path / "r", digits) == result
    assert records_of(tmp_path / "r") == records_of(tmp_path / "straight")  # and costs no record


@pytest.fixture
def two_at_once(tmp_path, digits, monkeypatch):
    """Two runs under way at once, as on a GPU; the second is watched. Records come before any checkpoint."""
    monkeypatch.setattr(module_execute, "PROBE_STEPS", 1)
    monkeypatch.setattr(module_execute._Shift, "_room", lambda self: 2)
    rare = {"output": {"log_every": 3, "checkpoint_every": 1000}}

    def go(watch, over=None):
        first, second = (quick(seed=seed, **merge(rare, over or {})) for seed in (0, 1))
        execute([
            lambda: Run.begin(first, tmp_path / "a", digits),
            lambda: Run.begin(second, tmp_path / "b", digits, watch),
        ])  # fmt: skip

    return go


def test_one_runs_failure_does_not_cost_the_others_their_work(tmp_path, digits, two_at_once):

    def fail(progress):
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        two_at_once(fail)
    assert Run.resume(tmp_path / "a", digits).cursor.position == 4  # one step alone, three beside the other
    assert not (tmp_path / "b" / "checkpoint").exists()  # the one that failed in mid-step is not saved


def test_a_run_that_cannot_be_saved_does_not_cost_the_others_their_work(tmp_path, digits, monkeypatch, two_at_once):
    save = Run.checkpoint

    def full(run):
        if run.folder.name == "a":
            raise CheckpointError("the disk is full")
        save(run)

    def ask(progress):
        monkeypatch.setattr(Run, "checkpoint", full)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(CheckpointError, match="disk is full"):
        two_at_once(ask)
    assert not held(tmp_path / "a")
    assert Run.resume(tmp_path / "b", digits).cursor.position == 3


def test_a_run_that_ends_beside_one_that_fails_is_not_saved_again(tmp_path, digits, two_at_once):

    def fail(progress):
        if (tmp_path / "a" / "result.json").exists():
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        two_at_once(fail, {"output": {"log_every": 1, "keep_checkpoint": False}})
    assert not (tmp_path / "a" / "checkpoint").exists()


def test_a_run_is_saved_on_the_stream_of_its_steps(tmp_path, digits, monkeypatch):
    """Elsewhere the copy of its state would not wait for the steps that the device has still to take."""
    current, saved_on, make = [], [], module_execute._Active.__init__

    @contextmanager
    def stream(which):
        current.append(which)
        yield
        current.pop()

    def with_stream(active, number, run):
        make(active, number, run)
        active.stream = f"stream {number}"

    monkeypatch.setattr(module_execute.torch.cuda, "stream", stream)
    monkeypatch.setattr(module_execute._Active, "__init__", with_stream)
    monkeypatch.setattr(Snapshot, "of", lambda *_: saved_on.append(list(current)))
    monkeypatch.setattr(StateWriter, "write", lambda *_: None)
    stop = {"output": {"log_every": 3, "checkpoint_every": 2}}
    with pytest.raises(Interrupted):
        start(quick(**stop), tmp_path, digits, lambda progress: signal.raise_signal(signal.SIGTERM))
    assert saved_on == [["stream 0"]] * 2  # after the second step, and when asked to stop


def test_finished_runs_are_let_go(tmp_path, digits):
    alive = []

    def make(seed):
        alive.append(sum(reference() is not None for reference in made))
        run = Run.begin(quick(seed=seed, stream={"samples_per_task": 10}), tmp_path / str(seed), digits)
        made.append(weakref.ref(run.learner))
        return run

    made = []
    execute([lambda seed=seed: make(seed) for seed in range(4)])
    assert max(alive) <= 1


def test_two_processes_cannot_write_one_run(tmp_path, digits):
    first = Run.begin(quick(), tmp_path, digits)
    with pytest.raises(ConfigError, match="another process"):
        Run.resume(tmp_path, digits)
    first.close()
    first.close()  # nothing is left to do
    assert finish(tmp_path, digits)["steps"] == 15


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "No locks available"), OSError(errno.ENOSYS, "No such call")])
def test_where_nothing_can_be_locked_a_run_is_refused_and_not_waited_for(tmp_path, digits, monkeypatch, error):
    def flock(handle, kind):
        raise error

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(CheckpointError, match=f"expected a file system with locks, got .*: {error.strerror}; choose"):
        start(quick(), tmp_path / "r", digits)


def test_a_run_that_ends_fails_or_is_stopped_lets_go_of_its_folder_whoever_remembers_it(tmp_path, digits):
    """What is raised keeps the frames it passed, and those the run."""
    made = []

    def go(folder, watch=None):
        def make():
            made.append(Run.begin(quick(), folder, digits, watch))
            return made[-1]

        execute([make])

    def fail(progress):
        raise KeyboardInterrupt

    go(tmp_path / "ended")
    with pytest.raises(KeyboardInterrupt) as failed:
        go(tmp_path / "failed", fail)
    with pytest.raises(Interrupted) as stopped:
        go(tmp_path / "stopped", lambda progress: signal.raise_signal(signal.SIGTERM))
    assert len(made) == 3
    assert not any(held(run.folder) for run in made), (failed, stopped)


def test_what_a_killed_run_left_half_written_is_cleared_when_it_goes_on(tmp_path, digits):
    folder = tmp_path / "run"
    Run.begin(quick(), folder, digits).close()
    for name in (".result.json.0123456789abcdef.part", ".config.json.12.part"):
        (folder / name).touch()
    finish(folder, digits)
    assert not list(folder.glob(".*"))


def test_a_run_that_cannot_be_begun_or_resumed_lets_go_of_its_folder(tmp_path, digits, monkeypatch):
    def fail(*_):
        raise RuntimeError("a bug of somebody's")

    with monkeypatch.context() as patch:
        patch.setattr(StreamPlan, "save", fail)
        with pytest.raises(RuntimeError) as begun:
            Run.begin(quick(), tmp_path, digits)
    assert not held(tmp_path), begun
    start(quick(), tmp_path, digits)
    monkeypatch.setattr("s6mod.runs.run.restore", fail)
    with pytest.raises(RuntimeError) as resumed:
        Run.resume(tmp_path, digits)
    assert not held(tmp_path), resumed


def test_leaving_a_run_waits_for_the_state_that_it_has_begun_to_save(tmp_path, digits, monkeypatch):
    write, asked = Snapshot.write, threading.Event()
    monkeypatch.setattr(Snapshot, "write", lambda *to: asked.wait(60) and write(*to))
    with Run.begin(quick(), tmp_path, digits) as run:
        next(run.steps())
        run.checkpoint(beside=True)
        threading.Timer(0.05, asked.set).start()
    assert not held(tmp_path)
    assert Run.resume(tmp_path, digits).cursor.position == 1


def test_a_state_that_could_not_be_saved_is_told_unless_something_else_ended_the_run(tmp_path, digits, monkeypatch):
    def full(*_):
        raise CheckpointError("the disk is full")

    def leave(error=None):
        with Run.begin(quick(), tmp_path / str(error), digits) as run:
            next(run.steps())
            run.checkpoint(beside=True)
            if error is not None:
                raise error

    monkeypatch.setattr(Snapshot, "write", full)
    with pytest.raises(CheckpointError, match="disk is full"):
        leave()
    with pytest.raises(RuntimeError, match="out of order"):
        leave(RuntimeError("out of order"))
    assert not any(held(folder) for folder in tmp_path.iterdir())


def test_resuming_on_other_images_is_refused(tmp_path, digits):
    start(quick(), tmp_path, digits)
    other = Dataset.from_arrays(255 - digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
    with pytest.raises(CheckpointError, match="same data set"):
        Run.resume(tmp_path, other)


def test_a_lost_checkpoint_is_not_passed_over_in_silence(tmp_path, digits):
    start(quick(output={"keep_checkpoint": False}), tmp_path, digits)
    (tmp_path / "result.json").unlink()
    with pytest.warns(UserWarning, match="starts over"):
        Run.resume(tmp_path, digits)


def test_a_diverged_run_says_so_and_its_records_stay_json(tmp_path, digits):
    with pytest.warns(UserWarning, match="not finite"):
        start(quick(method={"optimizer": {"lr": 1e30}}), tmp_path, digits)
    for line in (tmp_path / "records.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_tables_that_nobody_asked_for_are_scored_at_the_end_alone_and_change_no_figure(tmp_path, digits):
    everything = start(quick(**S6MOD), tmp_path / "all", digits)
    passes, reference = [], Predictor.reference.func
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor.reference, "func", lambda self: passes.append(1) or reference(self))
        result = start(quick(**S6MOD, output={"tables": "primary"}), tmp_path / "primary", digits)
    assert result["matrices"] == {"head": everything["matrices"]["head"]}
    assert result["predictors"] == everything["predictors"]
    assert result["hash"] == everything["hash"]
    assert len(passes) == 2  # over the memory: at the end, by each kind of statistics
    assert [r["accuracy"].keys() for r in records_of(tmp_path / "primary") if r["kind"] == "task"] == [{"head"}] * 3


def test_a_run_that_goes_on_with_fewer_tables_has_whole_matrices_of_those(tmp_path, digits):
    stop = lambda progress: signal.raise_signal(signal.SIGTERM) if progress.step == 5 else None  # noqa: E731
    with pytest.raises(Interrupted):
        start(quick(), tmp_path / "r", digits, stop)
    fewer = quick(output={"tables": "primary"})
    result = execute([lambda: Run.resume(tmp_path / "r", digits, config=fewer)])[0]
    assert {name: [len(row) for row in rows] for name, rows in result["matrices"].items()} == {"head": [1, 2, 3]}


def test_a_checkpoint_that_is_due_too_soon_is_left_out_and_the_run_goes_on_to_the_same_bits(
    tmp_path, digits, monkeypatch
):
    saved, save = [], Run.checkpoint

    def note(run, beside=False):
        saved.append(run.cursor.position)
        save(run, beside)

    monkeypatch.setattr(Run, "checkpoint", note)
    rare = quick(output={"checkpoint_every": 2, "checkpoint_seconds": 1000})
    start(rare, tmp_path / "straight", digits)
    assert saved == [2, 15]  # the first as soon as it is due, the last at the end
    with pytest.raises(Interrupted):
        start(rare, tmp_path / "r", digits, lambda progress: signal.raise_signal(signal.SIGTERM))
    finish(tmp_path / "r", digits)
    assert_same_tree(state(tmp_path / "straight"), state(tmp_path / "r"))


def test_evaluating_within_tasks_leaves_the_trajectory_unchanged(tmp_path, digits):
    start(quick(), tmp_path / "a", digits)
    start(quick(output={"eval_every": 2}), tmp_path / "b", digits)
    a, b = state(tmp_path / "a"), state(tmp_path / "b")
    del a["records_bytes"], b["records_bytes"]
    assert_same_tree(a, b)
    assert sum(r["kind"] == "evaluation" for r in records_of(tmp_path / "b")) == 6  # every second step but task ends


def test_what_is_logged_and_where_it_runs_does_not_name_the_run():
    base = quick()
    assert base.hash == quick(output={"log_every": 9}, engine={"device": "cpu"}, data={"root": "/elsewhere"}).hash
    assert base.hash != quick(seed=1).hash
    assert base.hash != quick(method={"optimizer": {"lr": 0.1}}).hash
    assert base.hash != quick(stream={"tasks": 2}).hash


def test_a_folder_with_a_run_is_not_overwritten(tmp_path, digits):
    start(quick(), tmp_path, digits)
    with pytest.raises(ConfigError, match="go on with --resume"):
        start(quick(seed=1), tmp_path, digits)
    assert finish(tmp_path, digits)["seed"] == 0


def test_a_folder_that_lost_its_configuration_is_not_taken_for_a_new_one(tmp_path, digits):
    start(quick(), tmp_path, digits)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match="choose another --out"):
        start(quick(seed=1), tmp_path, digits)


@pytest.mark.parametrize("content", ["", "{}", "[]", "7", '{"steps": 15}', "[" * 100_000])
def test_a_result_that_is_something_else_is_damaged(tmp_path, digits, content):
    start(quick(), tmp_path, digits)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"damaged .*result\.json; remove it and resume"):
        finish(tmp_path, digits)


def test_a_run_of_a_method_that_is_not_known_here_is_not_called_damaged(tmp_path, digits):
    Run.begin(quick(), tmp_path, digits)
    config = json.loads((tmp_path / "config.json").read_text())
    config["config"]["method"]["name"] = "of_my_own"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=rf"of_my_own.*\(in {tmp_path}/config.json\)"):
        Run.resume(tmp_path, digits)


@pytest.mark.parametrize("place", ["", "checkpoint"])
def test_a_learner_is_not_saved_into_a_runs_folder(tmp_path, digits, place):
    start(quick(), tmp_path / "r", digits)
    learner = Learner.load(tmp_path / "r")
    with pytest.raises(CheckpointError, match="belongs to a run; choose another"):
        learner.save(tmp_path / "r" / place)
    learner.save(tmp_path / "r" / "later")
    assert Learner.load(tmp_path / "r" / "later").steps == 15


def test_resuming_refuses_what_does_not_fit(tmp_path, digits):
    start(quick(), tmp_path / "a", digits)
    start(quick(seed=1), tmp_path / "b", digits)
    with pytest.raises(CheckpointError, match="check the path"):
        Run.resume(tmp_path / "nowhere")
    for file in (tmp_path / "b" / "checkpoint").iterdir():
        (tmp_path / "a" / "checkpoint" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CheckpointError, match="restore the right one"):
        Run.resume(tmp_path / "a", digits)
    other = Dataset.from_arrays(
        digits.train_images[10:], digits.train_labels[10:], digits.test_images, digits.test_labels
    )
    with pytest.raises(CheckpointError, match="same data set"):
        Run.resume(tmp_path / "b", other)
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    config["config"]["seed"] = 7
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="edited"):
        Run.resume(tmp_path / "b", digits)
    (tmp_path / "b" / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        Run.resume(tmp_path / "b", digits)


def test_resuming_elsewhere_warns(tmp_path, digits, monkeypatch):
    start(quick(), tmp_path, digits)
    (tmp_path / "result.json").unlink()
    monkeypatch.setattr("s6mod.runs.run.describe", lambda device: {"torch": "another", "threads": 1})
    with pytest.warns(UserWarning, match="last bits: torch was .* is another"):
        Run.resume(tmp_path, digits)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run.resume(tmp_path, digits)


def test_too_few_classes_are_refused_before_anything_is_written(tmp_path, digits):
    with pytest.raises(ConfigError, match="num_classes of at least 10"):
        start(quick(num_classes=5), tmp_path / "r", digits)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "part", ["learner", "cursor", "records_bytes", "learner/memory", "learner/host/steps", "header"]
)
def test_an_edited_checkpoint_under_a_right_digest_is_one_sentence(tmp_path, digits, part):
    start(quick(), tmp_path, digits)
    (tmp_path / "result.json").rename(tmp_path / "kept")
    tree, header = read_state(tmp_path / "checkpoint")
    *above, last = part.split("/")
    place = tree
    for name in above:
        place = place[name]
    if part == "header":
        del header["hash"]
    else:
        del place[last]
    write_state(tmp_path / "checkpoint", tree, header)
    with pytest.raises(CheckpointError, match=r"does not fit its configuration .*; use another copy"):
        finish(tmp_path, digits)
    (tmp_path / "kept").rename(tmp_path / "result.json")
    if part != "records_bytes":
        with pytest.raises(CheckpointError, match=r"does not fit its configuration .*; use another copy"):
            open_run(tmp_path, "cpu")
