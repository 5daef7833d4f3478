import errno
import fcntl
import json
import os

import pytest

from s6mod.errors import ConfigError
from s6mod.run_files import RunFiles
from s6mod.runs.cells import parse
from s6mod.runs.listing import as_rows, lines
from s6mod.runs.records import export
from s6mod.runs.store import scan


def test_a_run_is_finished_running_stopped_or_failed(tmp_path, write_run):
    write_run(tmp_path, "er/digits", seed=0)
    running, failed = (write_run(tmp_path, "er/digits", seed=seed, accuracy=None) for seed in (1, 2))
    write_run(tmp_path, "er/digits", seed=3, accuracy=None)
    RunFiles(failed).failure.write_text("Traceback ...")
    (tmp_path / "notes").mkdir()  # not a run
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        found = {run.seed: run.status for run in scan([tmp_path]).runs}
    finally:
        os.close(lock)
    assert found == {0: "finished", 1: "running", 2: "failed", 3: "stopped"}


def test_where_nothing_can_be_locked_nobody_is_said_to_have_a_run_under_way(tmp_path, write_run, monkeypatch):
    write_run(tmp_path, "er/digits", seed=0)
    write_run(tmp_path, "er/digits", seed=1, accuracy=None)

    def flock(handle, kind):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    found = scan([tmp_path])
    assert [run.status for run in found.runs] == ["finished"]
    assert len(found.problems) == 1
    assert "expected a file system with locks" in found.problems[0]


def test_a_run_and_its_record_count_once_and_precisions_are_told_apart(tmp_path, write_run):
    folder = write_run(tmp_path / "runs", "er/digits")
    export(folder / "result.json", tmp_path / "results")
    write_run(tmp_path / "runs", "er/digits", device="cpu")
    found = scan([tmp_path / "runs", tmp_path / "results"])
    assert sorted(run.precision for run in found.runs) == ["bfloat16", "float32"]
    assert len({run.hash for run in found.runs}) == 1  # asked for was auto
    assert found.repeated == 1
    [asked] = scan([write_run(tmp_path / "more", "er/digits", precision="float32")]).runs
    assert (asked.precision, asked.hash == found.runs[0].hash) == ("float32", False)


def test_an_unfinished_run_steps_back_behind_its_result(tmp_path, write_run):
    write_run(tmp_path / "runs", "er/digits", accuracy=None)
    export(write_run(tmp_path / "there", "er/digits") / "result.json", tmp_path / "results")
    assert [run.status for run in scan([tmp_path / "runs", tmp_path / "results"]).runs] == ["finished"]


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("result.json", "{", "got something else"),
        ("result.json", '{"format": 0}', "got format 0"),
        ("result.json", '{"format": 1, "hash": 1}', "damaged"),
        ("config.json", "[]", "damaged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_does_not_hide_the_rest(tmp_path, write_run, file, text, sentence):
    good = write_run(tmp_path, "er/digits", seed=1)
    bad = write_run(tmp_path, "er/digits", seed=2, accuracy=None)
    (bad / file).write_text(text)
    found = scan([tmp_path])
    assert [run.path for run in found.runs] == [good]
    [problem] = found.problems
    assert sentence in problem
    assert str(bad) in problem
    with pytest.raises(ConfigError, match="nowhere"):
        scan([tmp_path / "nowhere"])


def put(tree, place, value):
    """Set or, with an Ellipsis, take away what has a dotted name."""
    *above, name = place.split(".")
    for part in above:
        tree = tree[part]
    if value is ...:
        del tree[name]
    else:
        tree[name] = value


IN_BOTH = [
    ("config", {}), ("config.method", {}), ("config.method", None), ("config.method.name", []), ("config.branch", "x"),
    ("config.branch", {}), ("config.seed", None), ("config.seed", ...), ("config.memory_size", "x"),
    ("config.data", None), ("config.data.name", 3), ("config.engine", ...), ("config.engine.precision", None),
    ("environment", []), ("environment.device", None), ("environment.source", None), ("environment.numerics", "x"),
    ("data", []),
]  # fmt: skip
IN_RESULTS = [
    ("hash", None), ("cell", 3), ("seed", "x"), ("primary", "x"), ("primary", []), ("metrics", None), ("metrics", {}),
    ("metrics.head", []), ("metrics.head.accuracy", "x"), ("metrics.moe.forgetting", None), ("steps", None),
    ("ms_per_step", ...), ("ms_per_step", None), ("train_seconds", "x"), ("bytes_held", ...), ("bytes_held", {}),
    ("class_names", None), ("environment.command", 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [*(("config.json", *each) for each in IN_BOTH), *(("result.json", *each) for each in IN_BOTH + IN_RESULTS)],
)
def test_a_value_that_is_missing_or_of_another_type_is_one_sentence_and_does_not_hide_the_rest(
    tmp_path, write_run, call, file, place, value
):
    good = write_run(tmp_path, "er/digits", seed=1)
    bad = write_run(tmp_path, "er+s6mod/digits", seed=2, accuracy=None if file == "config.json" else 30.0)
    content = json.loads((bad / file).read_text())
    put(content, place, value)
    (bad / file).write_text(json.dumps(content, indent=1))
    code, out, err = call("runs", tmp_path, "--json")
    assert (code, [row["path"] for row in json.loads(out)]) == (0, [str(good)])
    assert err.count("\n") == 1
    assert err.startswith("warning: expected ")
    assert f"a damaged {bad / file}" in err
    code, _, err = call("table", "all", "--store", tmp_path)
    assert (code, err.count("\n")) == (2, 1)


def test_what_results_came_to_hold_later_and_options_that_nobody_knows_are_not_asked_for(tmp_path, write_run, call):
    file = write_run(tmp_path, "er/digits") / "result.json"
    content = json.loads(file.read_text())
    assert not {"runs_at_once", "class_names", "eval_seconds", "stream"} & content.keys()
    del content["environment"]["source"]
    content["config"]["data"] |= {"of_tomorrow": [1, {}]}
    content["config"]["method"] = {"name": "nobodys", "anything": [None]}
    file.write_text(json.dumps(content, indent=1))
    code, out, err = call("runs", tmp_path, "--json")
    assert (code, err.count("\n")) == (0, 1)
    assert "expected a known method, got 'nobodys' in 1 run" in err
    assert [row["cell"] for row in json.loads(out)] == ["nobodys/digits/200"]
    assert call("table", "all", "--store", tmp_path)[0] == 0


def test_runs_are_listed_filtered_and_sorted(tmp_path, write_run, call):
    for seed, accuracy in enumerate((30.0, 34.0, 32.0)):
        write_run(tmp_path, "er/digits", seed=seed, accuracy=accuracy)
    write_run(tmp_path, "er+s6mod/digits", seed=0, accuracy=None)
    code, out, _ = call("runs", tmp_path)
    assert code == 0
    assert "4 runs: 3 finished, 1 stopped" in out
    *table, _, go_on = out.splitlines()
    assert all(len(line) <= 100 for line in table)
    assert go_on.startswith(f"to go on: s6mod train --resume {tmp_path}/er+s6mod-")
    assert {"status", "cell", "seed", "Acc", "AF", "s", "ms", "MB", "device", "code"} <= set(out.split())

    def seeds(*options):
        return [row["seed"] for row in json.loads(call("runs", tmp_path, "--json", *options)[1])]

    assert seeds("--cell", "er/", "--sort=-acc") == [1, 2, 0]
    assert seeds("--sort", "acc") == [0, 2, 1, 0]  # the one without an accuracy comes last
    assert seeds("--status", "stopped") == [0]
    assert seeds("--seed", "2") == [2]
    assert seeds("--seed", "1-2", "--sort", "seed") == [1, 2]
    assert seeds("--precision", "float32") == []
    assert call("runs", tmp_path, "--precision", "f32")[0] == 2
    code, _, err = call("runs", tmp_path, "--sort", "accu")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean 'acc'" in err


def test_a_run_that_failed_before_it_had_a_configuration_is_not_passed_over(tmp_path, write_run, call):
    write_run(tmp_path, "er/digits", accuracy=30.0)
    write_run(tmp_path, "er/digits", seed=1, accuracy=None).joinpath("failure.txt").write_text("it began")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "failure.txt").write_text("no memory for it")
    told = f"warning: 2 runs failed before there was anything to list: see {tmp_path}/a/failure.txt\n"
    assert [call("runs", tmp_path, *more)[2] for more in ([], ["--status", "failed"], ["--status", "finished"])] == [
        told, told, "",
    ]  # fmt: skip


def test_other_files_among_runs_are_neither_to_be_adopted_nor_removed(tmp_path, write_run, call):
    write_run(tmp_path, "er/digits", accuracy=30.0)
    (tmp_path / "study.json").write_text(json.dumps({"kind": "study", "title": "inside"}))
    for arguments in (["runs", tmp_path], ["runs", "adopt", tmp_path]):
        _, _, err = call(*arguments)
        assert err.endswith(f"something else in {tmp_path}/study.json; give run folders and records alone\n")
    assert "1 run: 1 finished" in call("runs", tmp_path)[1]


@pytest.mark.parametrize("name", ["record.json", "run/result.json", "run/config.json"])
@pytest.mark.parametrize("levels", [200, 900, 100_000])
def test_one_file_nested_beyond_reason_is_one_sentence_and_the_others_are_listed(
    tmp_path, write_run, call, name, levels
):
    good = write_run(tmp_path, "er/digits", accuracy=30.0)
    content = json.loads((good / name.partition("/")[2]).read_text()) if "/" in name else {"format": 1}
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    content["config"] = "DEEP"
    file.write_text(json.dumps(content).replace('"DEEP"', '{"a": ' * levels + "1" + "}" * levels))
    code, out, err = call("runs", tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    assert str(file) in err
    assert "1 run: 1 finished" in out


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["result.json", "config.json"])
def test_a_pipe_in_the_folder_of_a_run_is_one_sentence_and_the_others_are_listed(tmp_path, write_run, call, name):
    write_run(tmp_path, "er/digits", accuracy=30.0)
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / name)
    code, out, err = call("runs", tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    assert str(tmp_path / "run" / name) in err
    assert "1 run: 1 finished" in out


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.name", "../" * 9 + "etc/x"), ("data.name", "x" * 3000), ("method.name", "a/b"), ("stream.blur", 10**400),
        ("method.optimizer.betas", [10**400, 1]), ("branch.name", "\x1b[2J"), ("method.\x1b[2J", 1),
    ],
)  # fmt: skip
def test_a_configuration_that_no_run_could_have_had_is_one_sentence(tmp_path, write_run, call, field, value):
    write_run(tmp_path, "er/digits", accuracy=30.0)
    folder = write_run(tmp_path, "er+s6mod/digits", accuracy=None)
    content = json.loads((folder / "config.json").read_text())
    part, _, key = field.partition(".")
    *above, key = key.split(".") if "optimizer" in key else [key]
    place = content["config"][part]
    for name in above:
        place = place[name]
    place[key] = value
    (folder / "config.json").write_text(json.dumps(content))
    code, out, err = call("runs", tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    assert f"got a damaged {folder}/config.json" in err
    assert "1 run: 1 finished" in out


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_does_not_say_its_device_is_one_sentence(tmp_path, write_run, call, finished):
    folder = write_run(tmp_path, "er/digits", accuracy=30.0 if finished else None)
    file = folder / ("result.json" if finished else "config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"environment": {}}, indent=1))
    code, out, err = call("runs", tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    assert "0 runs" in out
    assert str(folder) in err


def test_what_a_run_changes_of_its_preset_is_listed_and_settings_stand_together(tmp_path, write_run, call):
    for cell in ("er+s6mod/digits/200", "er+s6mod/digits/200/beta=5/stream.tasks=2"):
        for seed in (0, 1):
            write_run(tmp_path, cell, seed=seed)
    write_run(tmp_path, "er+s6mod/digits/200", seed=2, precision="float32")
    changes = ["stream.tasks=2", "beta=5.0"]
    rows = json.loads(call("runs", tmp_path, "--json")[1])
    assert [(row["seed"], row["changes"]) for row in rows] == [
        (0, []), (1, []), (2, ['engine.precision="float32"']), (0, changes), (1, changes),
    ]  # fmt: skip
    assert parse("er+s6mod/digits/200/" + "/".join(changes)).values()["branch"]["beta"] == 5  # as a cell has them
    header, *table = call("runs", tmp_path)[1].splitlines()
    place = header.index("changes")
    assert [line[place:] for line in table[:5]] == [
        "", "", 'engine.precision="float32"', *["stream.tasks=2, beta=5.0"] * 2,
    ]  # fmt: skip


@pytest.mark.parametrize("width", [140, 100, 80, 40])
def test_changes_take_the_room_that_a_terminal_has(tmp_path, write_run, width):
    write_run(tmp_path, "er/digits/200")
    write_run(tmp_path, "er/digits/200/stream.tasks=2/stream.limit=900/method.optimizer.lr=0.01")
    rows = as_rows(scan([tmp_path]).runs, "cell")
    plain = list(lines([row | {"changes": []} for row in rows]))
    shown = list(lines(rows, width))
    assert all(len(line) <= max(width, max(map(len, plain))) for line in shown)
    assert "".join(shown).count("=") == 3  # all of them are told
    beside = "changes" in shown[0]
    assert beside == (width >= 100)
    assert all(line.startswith(start) for line, start in zip(shown, plain, strict=False))
    assert "changes" not in plain[0]


@pytest.mark.parametrize("options", [[], ["--only-run"]])
def test_where_no_result_is_of_the_paper_one_is_told_which_table_has_them(tmp_path, call, write_run, options):
    write_run(tmp_path, "er/digits")
    told = "s6mod table all shows every one"
    assert told in call("table", "--store", tmp_path, *options)[2]
    assert call("table", "all", "--store", tmp_path)[2] == ""
    write_run(tmp_path, "er/cifar100/2000")
    assert call("table", "--store", tmp_path, *options)[2] == ""


def test_a_table_of_an_empty_store_says_how_to_fill_it(tmp_path, call):
    code, out, _ = call("table", "all", "--store", tmp_path)
    assert code == 0
    assert "nothing has been run: s6mod sweep runs cells" in out
    assert "95 %" not in out  # no legend to nothing
