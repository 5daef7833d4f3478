"""Optuna itself: two workers on one SQLite file, stopped politely, killed by force, and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from statistics import fmean

import pytest
import yaml

from s6mod.runs.config import RunConfig

pytestmark = pytest.mark.extras

TRIALS, SEEDS = 6, (100, 101)
COMMAND = [
    "tune", "er+s6mod/digits/50", "--tasks", "2", "--seeds", "100,101", "--trials", str(TRIALS), "--workers", "2",
    "--device", "cpu", "--search", "branch.beta=0.1|5", "--search", "method.optimizer.lr=log:1e-3:1e-1",
    "--set", "method.network.width=4", "--set", "stream.samples_per_task=60", "--set", "output.checkpoint_every=2",
    "--set", "output.checkpoint_seconds=0",
    "--set", "branch.d_inner=12", "--set", "branch.num_patterns=3", "--set", "branch.state_dim=4",
    "--set", "branch.dt_rank=3",
]  # fmt: skip


@pytest.fixture
def start(tmp_path):
    """The command, in a process group of its own."""

    def begin():
        program = [sys.executable, "-c", "from s6mod.cli import main; main()", *COMMAND]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(program, cwd=tmp_path, start_new_session=True, **pipes)

    return begin


def trials_in(folder):
    """The trials in the study's file, and those that are under way."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    [file] = folder.glob("tuning/*/study.db")
    [name] = optuna.get_all_study_names(f"sqlite:///{file}")
    trials = optuna.load_study(study_name=name, storage=f"sqlite:///{file}").trials
    return trials, [trial for trial in trials if trial.state.name == "RUNNING"]


def wait_until_under_way(folder, process):
    """Two trials under way, one of them with a checkpoint to go on from."""
    while process.poll() is None:
        time.sleep(0.1)
        if not list(folder.glob("tuning/*/runs/*/checkpoint/state.json")):
            continue
        trials, running = trials_in(folder)
        if len(running) == 2:
            return trials
    pytest.fail(process.communicate()[0])


def test_two_workers_on_one_file_stopped_killed_and_gone_on_with(tmp_path, start):
    stopped = start()
    wait_until_under_way(tmp_path, stopped)
    os.kill(stopped.pid, signal.SIGTERM)
    said, _ = stopped.communicate()
    assert stopped.returncode == 128 + signal.SIGTERM, said
    assert "stopped by SIGTERM; the same command goes on" in said
    trials, running = trials_in(tmp_path)
    assert running == []  # those under way went back to the queue

    killed = start()
    known = {trial.number: trial.value for trial in wait_until_under_way(tmp_path, killed) if trial.value is not None}
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    _, lost = trials_in(tmp_path)

    last = start()
    said, _ = last.communicate()
    assert last.returncode == 0, said
    trials, running = trials_in(tmp_path)
    done = [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert running == []
    assert len(done) == TRIALS
    values = {trial.number: trial.value for trial in trials}
    assert all(values[number] == value for number, value in known.items())
    for trial in lost:  # taken up again with the same values, if it had some
        assert trials[trial.number].state.name == "FAIL"
        chosen = trial.params or trial.system_attrs.get("fixed_params")
        assert chosen is None or any(again.params == chosen for again in done)
    spans = [(trial.datetime_start, trial.datetime_complete) for trial in done]
    assert any(a < b < c for a, c in spans for b, _ in spans)  # at the same time

    check_outcome(tmp_path, trials, said)


def check_outcome(folder, trials, said):
    [study] = folder.glob("tuning/*")
    results = [json.loads(file.read_text()) for file in study.glob("runs/*/result.json")]
    assert {len(result["matrices"]["head"]) for result in results} == {2}  # no run saw a third task
    assert {result["seed"] for result in results} <= set(SEEDS)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    for trial in complete:
        accuracies = [
            result["metrics"][result["primary"]]["accuracy"] for result in results if params(result) == trial.params
        ]
        assert len(accuracies) == len(SEEDS)
        assert trial.value == pytest.approx(fmean(accuracies))

    best = max(complete, key=lambda trial: trial.value)
    assert f"{best.value:.2f} %: {study.relative_to(folder)}/preset.yaml" in said
    preset = yaml.safe_load((study / "preset.yaml").read_text())
    assert preset["branch"]["beta"] == best.params["branch.beta"]
    assert preset["method"]["optimizer"]["lr"] == best.params["method.optimizer.lr"]
    assert "limit" not in preset["stream"]
    RunConfig.parse(preset)

    history = json.loads((study / "history.json").read_text())
    assert [trial["params"] for trial in history["trials"]] == [trial.params for trial in trials]
    assert history["best"] == best.number
    for trial in history["trials"]:
        if trial["state"] == "complete":
            assert trial["seeds"].keys() == {"100", "101"}
            assert trial["value"] == pytest.approx(fmean(trial["seeds"].values()))
            assert {"torch", "source", "s6mod"} <= trial["versions"].keys()


def params(result):
    config = result["config"]
    return {"branch.beta": config["branch"]["beta"], "method.optimizer.lr": config["method"]["optimizer"]["lr"]}


class Killed(BaseException):
    """What nobody handles, as a process that is gone."""


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_trial_that_was_killed_as_soon_as_it_had_begun_does_not_stay_under_way(tmp_path, monkeypatch):
    import optuna
    from optuna.storages._heartbeat import HeartbeatThread

    from s6mod.tuning import study
    from s6mod.tuning.config import TuneConfig, Tuning

    def judge(*_):
        raise Killed

    monkeypatch.setattr(HeartbeatThread, "start", lambda self: None)  # it was never its turn
    monkeypatch.setattr(HeartbeatThread, "join", lambda self: None)
    monkeypatch.setattr(study, "GRACE", 1)
    monkeypatch.setattr(study.Worker, "_judge", judge)
    search = TuneConfig(cell="er+s6mod/digits", search={"branch.beta": "0.1|5"}, trials=1)
    worker = study.Worker(Tuning(search, tmp_path, None, {}), lambda text: None)
    with pytest.raises(Killed):
        worker.study.optimize(lambda trial: worker._objective(trial, None), n_trials=1)
    assert [trial.state.name for trial in worker.study.trials] == ["RUNNING"]
    time.sleep(2.1)
    optuna.storages.fail_stale_trials(worker.study)
    assert [trial.state.name for trial in worker.study.trials] == ["FAIL", "WAITING"]  # to be tried again


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["er+s6mod/cifar100/2000"], "expected a GPU for 60 runs whose presets want one, got a CPU, which would take"),
        (["er+s6mod/cifar100/2000", "--yes"], "s6mod data cifar100"),  # past the guard: the files are not there
        (["er+s6mod/digits", "--device", "gpu"], "got 'gpu'"),
        (["er+s6mod/digits", "--storage", "nonsense"], "expected a database for the study"),
        (["er+s6mod/digits", "--storage", "nosuch://host/db"], "expected a database for the study"),
    ],
)
def test_what_cannot_work_or_would_take_for_ever_is_one_sentence(tmp_path, monkeypatch, call, words, hint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S6MOD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = call("tune", *words, "--search", "branch.beta=0.1|5")
    assert (code, err.count("\n")) == (2, 1), err
    assert hint in err
