import json
import multiprocessing

import pytest

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
