import json
import multiprocessing
import os
import time
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s6mod.errors import CheckpointError
from s6mod.runs.records import adopt, export, read_matrix, read_result
from s6mod.runs.store import scan


def test_a_record_is_the_result_under_a_seal(tmp_path, write_run):
    folder = write_run(tmp_path, "er+s6mod/cifar100/2000", seed=3)
    record = export(folder / "result.json", tmp_path / "results")
    assert record.name.startswith("er+s6mod-cifar100-2000-seed3-")
    content, result = json.loads(record.read_text()), json.loads((folder / "result.json").read_text())
    assert content.pop("sha256")
    assert content == result
    without_matrices = read_result(record, sealed=True)
    assert "matrices" not in without_matrices
    assert without_matrices["config"] == result["config"]
    assert export(folder / "result.json", tmp_path / "results") is None  # there already


def test_a_record_names_no_folder_of_the_machine_it_came_from(tmp_path, write_run):
    file = write_run(tmp_path, "er/cifar100/2000") / "result.json"
    result = json.loads(file.read_text())
    result["config"]["data"]["root"] = "/home/lovelace/data"
    folders = "--data-root '/home/lovelace/my data' --out=/home/lovelace/runs --data /home/lovelace/photos"
    result["environment"]["command"] = f"s6mod train {folders} --set output.log_every=9 --seed 0"
    file.write_text(json.dumps(result, indent=1))
    record = export(file, tmp_path / "results")
    assert "lovelace" not in record.read_text()
    content = read_result(record, sealed=True)
    assert content["environment"]["command"] == "s6mod train --data ./photos --set output.log_every=9 --seed 0"
    assert content["config"]["data"] == result["config"]["data"] | {"root": None}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("train --config /home/lovelace/small.yaml", "train --config ./small.yaml"),
        ("train --config=lovelace/small.yaml", "train --config ./small.yaml"),
        ("train --resume ~/lovelace/run", "train --resume ./run"),
        ("train --set data=/home/lovelace/photos.npz", "train --set data=./photos.npz"),
        ("train --set=data=lovelace/photos.npz", "train --set=data=./photos.npz"),
        ("train --set 'data={name: a, root: /my lovelace/a}'", "train --set 'data={name: a, root: ./a}'"),
        ("train --set data.root=lovelace/photos", "train --set data.root=./photos"),
        ("sweep ../lovelace/grid.yaml er/cifar100/2000", "sweep ./grid.yaml er/cifar100/2000"),
        (
            "sweep er,er+s6mod/cifar100/2000/beta=5 --data=digits",
            "sweep er,er+s6mod/cifar100/2000/beta=5 --data digits",
        ),
    ],
)
def test_a_command_keeps_the_last_part_of_every_path(tmp_path, write_run, words, kept):
    file = write_run(tmp_path, "er/digits") / "result.json"
    result = json.loads(file.read_text())
    result["environment"]["command"] = f"s6mod {words}"
    file.write_text(json.dumps(result, indent=1))
    record = export(file, tmp_path / "results")
    assert read_result(record, sealed=True)["environment"]["command"] == f"s6mod {kept}"
    assert "lovelace" not in record.read_text()


def test_a_changed_byte_is_noticed(tmp_path, write_run, call):
    record = export(write_run(tmp_path / "runs", "er/cifar100/2000") / "result.json", tmp_path / "results")
    text = record.read_text()
    for old, new in (("30.0", "36.0"), ('"seed": 0', '"seed": 1'), ("2.0,", "9.0,")):
        record.write_text(text.replace(old, new, 1))
        with pytest.raises(CheckpointError, match="changed byte"):
            read_result(record, sealed=True)
    code, _, err = call("table", "1", "--store", tmp_path / "results")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = call("runs", tmp_path / "results")
    assert (code, "changed byte" in err) == (0, True)
    code, _, err = call("runs", "adopt", tmp_path / "results", "--into", tmp_path / "other")
    assert (code, "changed byte" in err) == (1, True)


@pytest.mark.parametrize("command", ["adopt", "export"])
def test_what_a_killed_command_left_beside_records_is_cleared_a_day_later(tmp_path, write_run, call, command):
    source, results = write_run(tmp_path / "runs", "er/digits/200"), tmp_path / "results"
    old, new = results / ".a.json.12.part", results / ".b.json.0123456789abcdef.part"
    results.mkdir()
    for part in (old, new):
        part.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    words = ("adopt", source / "result.json", "--into", results) if command == "adopt" else ("export", results, source)
    assert call("runs", *words)[0] == 0
    assert not old.exists()
    assert new.exists()


def test_old_records_are_adopted_once_and_marked(tmp_path, write_run, call):
    results = tmp_path / "results"
    results.mkdir()
    for seed in (0, 1):
        folder = write_run(tmp_path / "runs", "er/digits", seed=seed)
        (results / f"old{seed}.json").write_text((folder / "result.json").read_text())
    [problem] = scan([results]).problems  # one sentence for all of them
    assert "2 without one" in problem
    code, out, _ = call("runs", "adopt", results)
    assert (code, "2 records written" in out) == (0, True)
    assert json.loads((results / "old0.json").read_text())["sealed"] == "when adopted"
    assert len(scan([results]).runs) == 2
    before = (results / "old0.json").read_bytes()
    assert adopt(results / "old0.json", results) is None
    assert (results / "old0.json").read_bytes() == before
    assert len(list(results.iterdir())) == 2
    assert adopt(results / "old0.json", tmp_path / "elsewhere").name.startswith("er-digits-200-seed0-")


def test_a_folder_without_finished_runs_is_said_to_have_none(tmp_path, write_run, call):
    write_run(tmp_path / "runs" / "first", "er/digits")  # a level too deep
    code, out, err = call("runs", "export", tmp_path / "results", tmp_path / "runs", columns=400)
    assert (code, out) == (2, "")
    assert "got none; name the folder right above them" in err
    assert not (tmp_path / "results").exists()


def test_a_folder_without_records_has_none_to_adopt(tmp_path, write_run, call):
    write_run(tmp_path / "runs", "er/digits")
    code, out, err = call("runs", "adopt", tmp_path / "runs", "--into", tmp_path / "results", columns=400)
    assert (code, out) == (2, "")
    assert "got none; s6mod runs export takes them out of runs" in err
    assert not (tmp_path / "results").exists()


def test_a_second_result_of_the_same_run_keeps_the_first(tmp_path, write_run):
    runs = [write_run(tmp_path, "er/digits", accuracy=30.0 + k, source=letter * 12) for k, letter in enumerate("abb")]
    first, second = (export(run / "result.json", tmp_path / "results") for run in runs[:2])
    assert second.stem == f"{first.stem}-bbbbbbbbbbbb"
    with pytest.raises(CheckpointError, match="remove one"):
        export(runs[2] / "result.json", tmp_path / "results")


def test_a_matrix_that_is_missing_is_one_sentence(tmp_path, write_run):
    folder = write_run(tmp_path, "er/digits")
    assert read_matrix(folder) == [[1.0], [2.0, 3.0]]
    with pytest.raises(CheckpointError, match="expected an accuracy matrix of the score table 'moe'"):
        read_matrix(folder, "moe")


def test_what_cannot_be_exported_is_named_and_does_not_stop_the_rest(tmp_path, write_run, call):
    results, runs = tmp_path / "results", tmp_path / "runs"
    for accuracy, source in ((30.0, "a" * 12), (31.0, "b" * 12)):
        export(write_run(tmp_path / source, "er/digits", accuracy=accuracy, source=source) / "result.json", results)
    write_run(runs, "er/digits", accuracy=32.0, source="b" * 12)  # neither of its two names is free
    write_run(runs, "er/digits", seed=1)
    (write_run(runs, "er/digits", seed=2) / "result.json").write_text("{")
    code, out, err = call("runs", "export", results, runs)
    assert code == 1
    assert "1 record written" in out
    assert len(scan([results]).runs) == 2
    assert [line.startswith("expected ") for line in err.split("not written: ")[1:]] == [True, True]
    assert "seed0" in err
    assert "seed2" in err


def export_all(folders, into):
    for folder in folders:
        export(folder / "result.json", into)


def test_many_processes_that_export_at_once_lose_nothing(tmp_path, write_run):
    """Eight processes, each with ten runs of its own and ten that all of them have."""
    into = tmp_path / "results"
    shared = [write_run(tmp_path / "shared", "er/digits", seed=seed) for seed in range(10)]
    context = multiprocessing.get_context("fork")  # nothing but files happens in there
    processes = []
    for number in range(8):
        seeds = range(100 * (number + 1), 100 * (number + 1) + 10)
        own = [write_run(tmp_path / str(number), "er/digits", seed=seed) for seed in seeds]
        processes.append(context.Process(target=export_all, args=([*own, *shared], into)))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = scan([into])
    assert (len(found.runs), found.problems, found.repeated) == (90, [], 0)
    assert [path for path in into.iterdir() if path.suffix != ".json"] == []


OUTSIDE = ["x/../../evil", "/../../evil", "..", "\x1b[31mred", "\x9b2J", "a\x00b", "a\ud800b", "\u202eevil", "a\nb"]


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize("field", ["hash", "environment.source"])
def test_what_stands_in_the_name_of_a_record_leads_nowhere_else(tmp_path, write_run, call, field, value):
    file = write_run(tmp_path / "runs", "er/digits/200") / "result.json"
    content = json.loads(file.read_text())
    part, _, key = field.rpartition(".")
    (content[part] if part else content)[key] = value
    record = tmp_path / "deep" / "er" / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps(content))
    before = sorted(tmp_path.rglob("*"))
    into = tmp_path / "deep" / "er" / "known"
    code, _, err = call("runs", "adopt", record, "--into", into)
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.parent != into] in ([], [into])
    if field == "environment.source" and value == "..":
        assert code == 0  # stays within the name of a file
    else:
        assert (code, err.count("\n")) == (1, 1)
        assert f"see its {field}" in err


@pytest.mark.parametrize("value", ["\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "a\x00b", "a\ud800b", "\u202eevil"])
@pytest.mark.parametrize(
    "field",
    ["cell", "data", "primary", "format", "environment.device", "environment.source", "config.method.name",
     "config.branch.name", "config.data.name", "config.engine.precision", "key", "metric"],
)  # fmt: skip
def test_a_record_cannot_command_the_terminal(tmp_path, write_run, call, field, value):
    folder = write_run(tmp_path, "er+s6mod/mine/200", own=str(tmp_path / "mine.npz"))
    file = folder / "result.json"
    content = json.loads(file.read_text())
    if field == "key":
        content["config"]["stream"][value] = 3
    elif field == "metric":
        content["metrics"][value] = content["metrics"]["head"] | {"accuracy": None}
    else:
        *parts, key = field.split(".")
        place = content
        for part in parts:
            place = place[part]
        place[key] = value
    file.write_text(json.dumps(content))
    for words in (
        ["list", tmp_path],
        ["export", tmp_path / "out", tmp_path],
        ["adopt", file, "--into", tmp_path / "in"],
    ):
        _, out, err = call("runs", *words)
        assert all(line.isprintable() for line in (out + err).split("\n"))


@pytest.mark.parametrize(
    "predictors", [{"latest/running": [1.0]}, {"latest/running/\x1b[2J": [1.0]}, {"a/b/c": []}, {"a/b/c": [1e300]}]
)
def test_accuracies_by_what_no_run_could_predict_with_are_damage(tmp_path, write_run, call, predictors):
    file = write_run(tmp_path, "er/digits/200") / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"predictors": predictors}))
    code, out, err = call("predictors", tmp_path)
    assert (code, out) == (2, "")
    assert "got a damaged" in err
    assert "see its predictors" in err
    assert all(line.isprintable() for line in err.split("\n"))


NASTY = st.sampled_from([
    None, True, -1, 10**30, 1e308, "..", "a/b", "\x1b[2J", "\x00", "\ud800", "'", "x" * 300, [], {}, [[]], {"a": []},
])  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10**6), NASTY), min_size=1, max_size=3))
def test_whatever_a_record_holds_is_taken_or_told_in_one_sentence(tmp_path_factory, write_run, changes):
    home = tmp_path_factory.mktemp("fuzz")
    file = write_run(home / "runs", "er+s6mod/digits/200") / "result.json"
    content = json.loads(file.read_text())
    for place, value in changes:
        places = list(_places(content))
        holder, key = places[place % len(places)]
        holder[key] = deepcopy(value)
    file.write_text(json.dumps(content))
    told = scan([home / "runs"]).problems
    for write in (export, adopt):
        try:
            write(file, home / "in" / "known")
        except CheckpointError as error:
            told.append(str(error))
        except OSError as error:  # a name that is too long
            told.append(f"expected, got {error.strerror}")
    assert all(sentence.startswith("expected") and sentence.isprintable() for sentence in told)
    assert {path.parent for path in home.rglob("*") if path.is_file()} <= {file.parent, home / "in" / "known"}


def _places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)
