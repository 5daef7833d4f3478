import json
import math
import signal
from typing import ClassVar

import pytest
from states import assert_same_tree

from records import numbers_by_step, records_of
from s6mod.engine.checkpoint import read_state
from s6mod.errors import ConfigError
from s6mod.files import parse_json
from s6mod.runs.config import OutputConfig, RunConfig
from s6mod.runs.execute import Interrupted
from s6mod.trackers import Tracker, mirrors, require
from s6mod.trackers.mirrors import numbers


class Careful(Tracker):
    """A store in memory that cannot take anything back."""

    store: ClassVar[dict[str, dict]] = {}
    log: ClassVar[list[str]] = []

    def __init__(self, subject, run_id):
        self.run_id = run_id or f"run{len(self.store)}"
        self.points = self.store.setdefault(self.run_id, {})
        self.next_step = max(self.points, default=-1) + 1
        self.log.append(f"open {self.run_id}")

    def record(self, step, values):
        shown = self.points.setdefault(step, {})
        assert not shown.keys() & values.keys()
        shown.update(values)

    def end(self, step, values):
        self.log.append(f"end {step} {values['result/head/accuracy']}")

    def close(self):
        self.log.append("close")


class Live(Careful):
    live = True

    def __init__(self, subject, run_id):
        super().__init__(subject, run_id)
        self.points.clear()
        self.next_step = 0


class Broken(Tracker):
    def __init__(self, subject, run_id):
        raise RuntimeError("no connection\nand more")

    record = end = close = None


class Breaks(Careful):
    """Opens, and then fails on every call."""

    def record(self, step, values):
        raise OSError("disk full")

    end = close = record


@pytest.fixture(autouse=True)
def empty():
    Careful.store.clear()
    Careful.log.clear()


def name(tracker):
    return f"{tracker.__module__}:{tracker.__name__}"


def stop_at(step):
    def watch(progress):
        if progress.step >= step:
            signal.raise_signal(signal.SIGTERM)

    return watch


class Killed(BaseException):
    """Ends a run as a kill would: nothing is saved."""


def kill_at(step):
    def watch(progress):
        if progress.step >= step:
            raise Killed

    return watch


@pytest.mark.parametrize("tracker", [Careful, Live])
def test_a_tracker_gets_what_the_run_writes(tmp_path, train, tracker):
    result = train(tmp_path / "r", name(tracker))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}
    assert Careful.log == ["open run0", f"end 15 {result['metrics']['head']['accuracy']}"]


@pytest.mark.parametrize("tracker", [Careful, Live])
def test_a_stopped_run_goes_on_in_the_same_tracker_run_without_a_repeated_step(tmp_path, train, tracker):
    for step in (4, 8, 12):
        with pytest.raises(Interrupted):
            train(tmp_path / "r", name(tracker), watch=stop_at(step))
        assert Careful.store["run0"] == numbers_by_step(tmp_path / "r")  # a checkpoint holds them
    train(tmp_path / "r", name(tracker))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}
    assert Careful.log[:3] == ["open run0", "close", "open run0"]


@pytest.mark.parametrize("tracker", [Careful, Live])
def test_records_that_a_kill_cuts_off_are_not_in_the_mirror(tmp_path, train, tracker):
    with pytest.raises(Killed):
        train(tmp_path / "r", name(tracker), watch=kill_at(8))
    assert list(Careful.store["run0"]) == ([4, 5, 8] if tracker is Live else [4, 5])  # the checkpoint is of step 5
    train(tmp_path / "r", name(tracker))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}


def test_a_run_that_starts_over_gets_a_new_tracker_run_where_nothing_can_be_taken_back(tmp_path, train):
    with pytest.raises(Killed):
        train(tmp_path / "r", name(Careful), watch=kill_at(8))
    for file in (tmp_path / "r" / "checkpoint").iterdir():
        file.unlink()
    with pytest.warns(UserWarning, match="starts over"):
        train(tmp_path / "r", name(Careful))
    assert Careful.store["run1"] == numbers_by_step(tmp_path / "r")
    assert Careful.log[2:5] == ["open run0", "close", "open run1"]


@pytest.mark.parametrize("kept", ["{", "3", "[1]", '{"%s": 3}', '{"%s": [1]}'])
def test_what_was_kept_of_trackers_cannot_end_a_run(tmp_path, train, kept):
    with pytest.raises(Interrupted):
        train(tmp_path / "r", name(Live), watch=stop_at(4))
    (tmp_path / "r" / mirrors.STATE).write_text(kept.replace("%s", name(Live)))
    train(tmp_path / "r", name(Live))
    assert Careful.store["run1"] == numbers_by_step(tmp_path / "r")


def test_a_finished_run_can_be_mirrored_afterwards_and_is_not_mirrored_twice(tmp_path, train):
    train(tmp_path / "r")
    train(tmp_path / "r", name(Careful))
    train(tmp_path / "r", name(Careful))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}
    assert len(Careful.log) == 2


@pytest.mark.parametrize("tracker", [Broken, Breaks])
def test_a_tracker_that_raises_on_every_call_costs_one_warning_and_not_a_bit(tmp_path, train, tracker):
    plain = train(tmp_path / "plain")
    with pytest.warns(UserWarning, match=r"does not mirror er/digits/50 seed 0 \(\w+: ") as caught:
        result = train(tmp_path / "tracked", name(tracker))
    assert len(caught) == 1
    for part in ("hash", "metrics", "matrices", "stream"):
        assert result[part] == plain[part]
    assert numbers_by_step(tmp_path / "tracked") == numbers_by_step(tmp_path / "plain")
    a, b = (read_state(tmp_path / folder / "checkpoint")[0] for folder in ("plain", "tracked"))
    del a["cursor"], b["cursor"]  # clocks
    assert_same_tree(a, b)


def test_a_tracker_that_failed_for_a_while_is_whole_at_the_end(tmp_path, train, monkeypatch):
    record, calls = Careful.record, []

    def fails_once(self, step, values):
        calls.append(step)
        if len(calls) == 3:
            raise TimeoutError("no answer")
        record(self, step, values)

    monkeypatch.setattr(Careful, "record", fails_once)
    with pytest.warns(UserWarning, match="TimeoutError: no answer"):
        train(tmp_path / "r", name(Careful))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}


def test_a_record_is_read_once_however_many_checkpoints_follow(tmp_path, train, monkeypatch):
    read = []

    def loads(text):
        read.append(parse_json(text))
        return read[-1]

    monkeypatch.setattr(mirrors, "parse_json", loads)
    train(tmp_path / "r", name(Careful))
    assert [each for each in read if "step" in each] == records_of(tmp_path / "r")


def test_one_trackers_failure_is_nothing_to_another(tmp_path, train):
    with pytest.warns(UserWarning, match="RuntimeError: no connection"):
        train(tmp_path / "r", name(Broken), name(Careful))
    assert Careful.store == {"run0": numbers_by_step(tmp_path / "r")}


def test_numbers_have_names_and_what_json_could_not_hold_is_nan():
    record = {
        "step": 5, "kind": "step", "task": 1,
        "terms": {"ce": 0.5, "branch/dr": None}, "figures": {"sigma": [0.1, 0.2], "mean": 2.0},
    }  # fmt: skip
    found = numbers(record)
    assert math.isnan(found.pop("terms/branch/dr"))
    expected = {"terms/ce": 0.5, "figures/sigma/0": 0.1, "figures/sigma/1": 0.2, "figures/mean": 2.0, "task": 1}
    assert found == expected
    evaluation = {"step": 5, "kind": "task", "task": 1, "accuracy": {"head": [20.0, 40.0]}}
    expected = {"accuracy/head/0": 20.0, "accuracy/head/1": 40.0, "accuracy/head/mean": 30.0}
    assert numbers(evaluation) == expected
    assert numbers({"step": 5, "kind": "confusion", "task": 1, "classes": [[0]], "counts": [[3]]}) == {}


def test_trackers_do_not_name_the_run():
    tracked = RunConfig.parse({"method": {"name": "er"}, "output": {"track": ["wandb", "mlflow", "wandb"]}})
    assert tracked.hash == RunConfig.parse({"method": {"name": "er"}}).hash
    assert tracked.output.track == ["wandb", "mlflow"]


def test_an_unknown_tracker_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"track: expected a known tracker .* got 'wandbb'; did you mean 'wandb'"):
        OutputConfig.parse({"track": ["wandbb"]})


@pytest.mark.parametrize("extra", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_extra_is_named_with_its_install_command(monkeypatch, extra):
    monkeypatch.setattr("importlib.util.find_spec", lambda library: None)
    with pytest.raises(ConfigError, match=rf"run: pip install -e '\.\[{extra}\]'"):
        require([extra])


PLANTED = """
from pathlib import Path
Path("planted.txt").write_text("code of the folder has run")
class Mine:
    live, next_step, run_id = False, 0, "1"
    def __init__(self, *_): pass
    record = end = close = __init__
"""


@pytest.mark.parametrize("finished", [False, True])
def test_a_tracker_that_only_the_run_folder_names_is_not_imported(tmp_path, call, monkeypatch, finished):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own, folder = f"planted{finished}:Mine", tmp_path / "r"
    (tmp_path / f"planted{finished}.py").write_text(PLANTED)
    small = ["method.network.width=4", "stream.tasks=2", "stream.samples_per_task=20"]
    assert call("train", "--quiet", "--out", folder, *(word for each in small for word in ("--set", each)))[0] == 0
    file = folder / "config.json"
    content = json.loads(file.read_text())
    content["config"]["output"]["track"] = [own]
    file.write_text(json.dumps(content))
    if not finished:
        (folder / "result.json").unlink()
    code, _, err = call("train", "--resume", folder, "--quiet")
    assert (code, (tmp_path / "planted.txt").exists()) == (0, False)
    assert err.startswith(
        f"warning: {folder} names the tracker {own}, which is imported only if you name it: add --track {own}"
    )
    call("train", "--resume", folder, "--quiet", "--track", own)
    assert (tmp_path / "planted.txt").exists()


def test_a_run_that_is_stopped_says_how_to_go_on_with_its_own_tracker(tmp_path, train):
    with pytest.raises(Interrupted, match=f"--resume {tmp_path}/r --track {name(Careful)}$"):
        train(tmp_path / "r", name(Careful), watch=stop_at(4))
