"""What each tracker asks of its library, with a stand-in for the library; the real ones are under ``extras``."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from s6mod.trackers import Subject

CONFIG = {"method": {"name": "er", "sizes": list(range(3000))}, "seed": 3}


@pytest.fixture
def subject(tmp_path):
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    return Subject(folder, "er/digits/50", 3, "abc", CONFIG)


@pytest.fixture
def library(monkeypatch):
    """Put a module with these attributes in the place of a library and import a tracker anew."""

    def install(tracker, name, **attributes):
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, f"s6mod.trackers.{tracker}", raising=False)
        return module

    return install


def test_tensorboard_writes_into_the_run_folder_and_makes_readers_forget_earlier_files(subject, library):
    log = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            log.append((folder, purge_step))

        def add_text(self, name, text, step):
            log.append((name, text.startswith("    method:\n"), step))

        def add_scalar(self, name, value, step):
            log.append((name, value, step))

        def flush(self):
            log.append("flush")

        def close(self):
            log.append("close")

    library("tensorboard", "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    tracker = importlib.import_module("s6mod.trackers.tensorboard").TensorBoard(subject, None)
    assert tracker.live
    assert tracker.next_step == 0
    tracker.record(5, {"terms/ce": 0.5})
    tracker.close()
    folder = str(subject.folder / "tensorboard")
    assert log == [(folder, 0), ("configuration", True, 0), "flush", ("terms/ce", 0.5, 5), "flush", "close"]


class WandBRun:
    def __init__(self, **options):
        self.options, self.step, self.summary, self.rows = options, 7, {}, []

    def log(self, values, step):
        self.rows.append((step, values))

    def finish(self, exit_code):
        self.exit_code = exit_code


@pytest.fixture
def wandb(library, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    library("wandb", "wandb", login=lambda prompt: False, init=WandBRun, Settings=dict)
    return importlib.import_module("s6mod.trackers.wandb").WandB


def test_wandb_resumes_by_id_from_the_step_that_it_has(subject, wandb):
    tracker = wandb(subject, "id7")
    options = tracker.run.options
    assert (options["id"], options["resume"], options["reinit"]) == ("id7", "allow", "create_new")
    assert (options["project"], options["group"], options["name"]) == ("s6mod", "er/digits/50", "er/digits/50 seed 3")
    assert options["config"]["hash"] == "abc"
    assert tracker.next_step == 7
    tracker.record(8, {"terms/ce": 0.5})
    tracker.end(8, {"result/head/accuracy": 30.0})
    assert tracker.run.rows == [(8, {"terms/ce": 0.5})]
    assert tracker.run.summary == {"result/head/accuracy": 30.0}
    assert tracker.run.exit_code == 0


def test_wandb_is_offline_without_a_login_unless_told(subject, wandb, monkeypatch):
    assert wandb(subject, None).run.options["mode"] == "offline"
    monkeypatch.setattr(sys.modules["wandb"], "login", lambda prompt: True)
    assert wandb(subject, None).run.options["mode"] == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert wandb(subject, None).run.options["mode"] == "offline"


def test_wandb_offline_replaces_its_own_unsent_files_only(subject, wandb):
    home = subject.folder / "wandb"
    for name in ("offline-run-1-mine", "offline-run-2-mine", "offline-run-3-other"):
        (home / name).mkdir(parents=True)
    (home / "offline-run-2-mine" / "run-mine.wandb.synced").touch()
    wandb(subject, "mine")
    assert sorted(path.name for path in home.iterdir()) == ["offline-run-2-mine", "offline-run-3-other"]


class Client:
    """MLflow as far as it is used; calls are kept."""

    def __init__(self, uri):
        self.uri, self.calls, self.tags = uri, [], {"next_step": "9"}

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name, place):
        self.calls.append(("experiment", name, place))
        return "1"

    def create_run(self, experiment, run_name, tags):
        self.calls.append(("run", experiment, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="new"))

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        self.calls.append(("batch", run_id, len(metrics), len(params), [tag for tag in tags]))

    def update_run(self, run_id, status):
        self.calls.append(("update", run_id, status))

    def get_run(self, run_id):
        return SimpleNamespace(data=SimpleNamespace(tags=self.tags))

    def set_terminated(self, run_id, status):
        self.calls.append(("terminated", run_id, status))


@pytest.fixture
def mlflow(library, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, "1")
    library("mlflow", "mlflow", MlflowClient=Client)
    entity = {name: lambda *values: values for name in ("Metric", "Param", "RunTag")}
    library("mlflow", "mlflow.entities", **entity)
    library("mlflow", "mlflow.exceptions", MlflowException=RuntimeError)
    return importlib.import_module("s6mod.trackers.mlflow").MLflow


def test_mlflow_begins_in_a_file_beside_the_run_folders(subject, mlflow):
    tracker = mlflow(subject, None)
    home = Path(subject.folder).resolve().parent
    assert tracker.client.uri == f"sqlite:///{home}/mlflow.db"
    assert (tracker.run_id, tracker.next_step) == ("new", 0)
    experiment, run, parameters = tracker.client.calls
    assert experiment == ("experiment", "s6mod", f"file://{home}/mlflow-artifacts")
    assert run[3] == {"cell": "er/digits/50", "seed": "3", "hash": "abc"}
    assert parameters == ("batch", "new", 0, 3, [])


def test_mlflow_goes_on_after_the_step_that_the_store_has_and_sends_no_more_than_it_takes(subject, mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker")
    tracker = mlflow(subject, "old")
    assert tracker.client.uri == "http://tracker"
    assert (tracker.run_id, tracker.next_step) == ("old", 9)
    tracker.record(9, {f"figures/sigma/{number}": 0.0 for number in range(1500)})
    tracker.close()
    assert tracker.client.calls == [
        ("update", "old", "RUNNING"),
        ("batch", "old", 1000, 0, []),
        ("batch", "old", 500, 0, [("next_step", "10")]),
        ("terminated", "old", "KILLED"),
    ]
