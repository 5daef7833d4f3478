import errno
import json
import os
import signal
import threading
from contextlib import suppress
from copy import deepcopy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import write_state

from s6mod.engine import checkpoint
from s6mod.engine.checkpoint import Snapshot, StateWriter, read_state
from s6mod.errors import CheckpointError, S6modError
from s6mod.learner import Learner

TREE = {
    "weights": {
        "a": torch.arange(6.0).reshape(2, 3),
        "b": torch.randn(4, 4).to(memory_format=torch.contiguous_format).T,
    },
    "counts": {"step": 7, "rate": 0.1, "names": ["x", "y"], "none": None},
    "generator": torch.Generator().manual_seed(3).get_state(),
}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key, value in a.items():
        if isinstance(value, dict):
            assert_same(value, b[key])
        elif isinstance(value, torch.Tensor):
            assert torch.equal(value, b[key])
            assert value.dtype == b[key].dtype
        else:
            assert value == b[key]


def test_a_tree_comes_back_as_it_was(tmp_path):
    write_state(tmp_path / "s", TREE, {"kind": "test"})
    tree, header = read_state(tmp_path / "s")
    assert header == {"kind": "test"}
    assert_same(TREE, tree)


def test_saving_again_replaces_the_state_and_leaves_nothing_behind(tmp_path):
    write_state(tmp_path, TREE, {})
    write_state(tmp_path, {"weights": torch.zeros(2)}, {})
    assert read_state(tmp_path)[0]["weights"].tolist() == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("pattern", ["state.json", "*.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_noticed(tmp_path, pattern, damage):
    write_state(tmp_path, TREE, {"kind": "test"})
    file = next(tmp_path.glob(pattern))
    content = bytearray(file.read_bytes())
    if damage == "flip":
        at = content.index(b'"step": 7') + 8 if pattern == "state.json" else len(content) - 3
        content[at] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    with pytest.raises(CheckpointError, match="expected"):
        read_state(tmp_path)


def test_a_file_in_place_of_a_folder_is_no_damage(tmp_path):
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"got the file .*record\.json; a record of a run holds no network"):
        read_state(tmp_path / "record.json")


def test_a_full_disk_keeps_the_old_state_and_no_remains(tmp_path, monkeypatch):
    write_state(tmp_path, TREE, {"kind": "old"})
    before = sorted(p.name for p in tmp_path.iterdir())

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    for nth in (1, 2):  # the tensor file does not fit; the tensor file fits and the JSON does not
        calls = iter(range(1, 3))
        monkeypatch.setattr(
            checkpoint, "write_whole", lambda p, c, n=nth, k=calls: full(p, c) if next(k) == n else p.write_bytes(c)
        )
        with pytest.raises(CheckpointError, match="disk is full; the state saved before is still whole"):
            write_state(tmp_path, {"weights": torch.ones(3)}, {"kind": "new"})
        assert sorted(p.name for p in tmp_path.iterdir()) == before
        assert read_state(tmp_path)[1] == {"kind": "old"}


def test_a_state_written_beside_the_work_is_that_of_the_moment_it_was_asked_for(tmp_path, monkeypatch):
    go_on, write = threading.Event(), checkpoint.write_whole
    monkeypatch.setattr(checkpoint, "write_whole", lambda *file: go_on.wait(60) and write(*file))
    tree = {"weights": torch.zeros(2), "rows": [1]}
    states = StateWriter(tmp_path)
    states.write(Snapshot.of(tree, {}))
    tree["weights"] += 1  # the work goes on while nothing is on disk yet
    tree["rows"].append(2)
    assert not (tmp_path / "state.json").exists()
    go_on.set()
    states.wait()
    assert_same(read_state(tmp_path)[0], {"weights": torch.zeros(2), "rows": [1]})


def test_the_next_state_waits_for_the_one_before(tmp_path, monkeypatch):
    order, write = [], checkpoint.write_whole
    monkeypatch.setattr(
        checkpoint, "write_whole", lambda path, content: order.append(path.suffix) or write(path, content)
    )
    states = StateWriter(tmp_path)
    for number in range(4):
        states.write(Snapshot.of({"number": torch.tensor(number)}, {}))
    states.wait()
    assert order == [".safetensors", ".json"] * 4
    assert read_state(tmp_path)[0]["number"] == 3
    assert len(list(tmp_path.iterdir())) == 2


def test_two_who_save_at_once_take_turns_and_leave_a_whole_state(tmp_path, monkeypatch):
    between, go_on, write = threading.Event(), threading.Event(), checkpoint.write_whole

    def slow(path, content):
        if path.name == "state.json" and not between.is_set():  # the first writer has its tensors on disk, no more
            between.set()
            go_on.wait(60)
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_whole", slow)
    saves = [threading.Thread(target=write_state, args=(tmp_path, {"n": torch.tensor(n)}, {})) for n in range(2)]
    saves[0].start()
    between.wait(60)
    saves[1].start()
    saves[1].join(0.1)  # time enough to spoil what the first has written
    go_on.set()
    for save in saves:
        save.join()
    assert read_state(tmp_path)[0]["n"] == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("times", [1, 3])
def test_a_state_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch, times):
    write_state(tmp_path, {"n": torch.tensor(0)}, {})
    read, numbers = checkpoint._read_content, iter(range(1, times + 1))

    def overtaken(folder):
        content = read(folder)
        for number in numbers:
            write_state(folder, {"n": torch.tensor(number)}, {})
            break
        return content

    monkeypatch.setattr(checkpoint, "_read_content", overtaken)
    assert read_state(tmp_path)[0]["n"] == times
    monkeypatch.setattr(checkpoint, "READINGS", times)
    numbers = iter(range(10, 10 + times))
    with pytest.raises(CheckpointError, match="missing"):
        read_state(tmp_path)


def test_a_state_that_could_not_be_written_beside_the_work_is_told_once(tmp_path):
    (tmp_path / "file").write_text("x")
    states = StateWriter(tmp_path / "file")
    states.write(Snapshot.of(TREE, {}))
    with pytest.raises(CheckpointError, match="choose a folder"):
        states.wait()
    states.wait()


def test_a_state_of_another_format_says_so(tmp_path):
    write_state(tmp_path, TREE, {})
    content = json.loads((tmp_path / "state.json").read_text())
    del content["digest"]
    content["format"] = 99
    (tmp_path / "state.json").write_text(json.dumps({"digest": checkpoint._digest(content), **content}))
    with pytest.raises(CheckpointError, match="format 99"):
        read_state(tmp_path)


def test_saving_removes_what_a_killed_process_left_and_nothing_of_the_users(tmp_path):
    theirs = [tmp_path / "state-of-the-art.safetensors", tmp_path / "notes.part"]
    ours = [tmp_path / ".state-0123456789abcdef.safetensors.999.part", tmp_path / "state-0123456789abcdef.safetensors"]
    for file in theirs + ours:
        file.write_text("x")
    write_state(tmp_path, TREE, {})
    assert all(file.exists() for file in theirs)
    assert not any(file.exists() for file in ours)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="choose a folder"):
        write_state(tmp_path / "file", TREE, {})


@pytest.mark.parametrize(
    "content", ["[]", "7", "{}", "null", "[" * 100_000, '{"tensors": ' + "[" * 500 + "]" * 500 + "}"]
)
def test_a_state_that_is_other_json_is_damaged(tmp_path, content):
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read_state(tmp_path)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pattern", ["state.json", "*.safetensors"])
def test_a_pipe_in_place_of_a_state_is_damage(tmp_path, pattern):
    write_state(tmp_path, TREE, {})
    file = next(tmp_path.glob(pattern))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match="damaged"):
        read_state(tmp_path)


def test_a_missing_folder_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="check the path"):
        read_state(tmp_path / "nowhere")


def test_a_forked_process_writes_too(tmp_path):
    snapshot = Snapshot.of(TREE, {})
    ours = StateWriter(tmp_path / "ours")
    ours.write(snapshot)
    ours.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # rather than wait for ever
        writer = StateWriter(tmp_path / "theirs")
        writer.write(snapshot)
        writer.wait()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_same(TREE, read_state(tmp_path / "theirs")[0])


@pytest.fixture(scope="module", params=[("er", None), ("der++", 0.9)], ids=["er", "values and averages"])
def saved(tmp_path_factory, request):
    """The state of a small learner that has learned, as it was saved."""
    folder, (method, average) = tmp_path_factory.mktemp("saved"), request.param
    learner = Learner(
        {"name": method, "network": {"width": 2}, "memory_batch": 4},
        {"name": "s6mod", "d_inner": 6, "num_patterns": 2, "state_dim": 2, "dt_rank": 2},
        num_classes=4,
        memory_size=6,
        average=average,
    )
    for _ in range(2):
        learner.learn(torch.rand(4, 3, 8, 8), [0, 1, 2, 3])
    learner.save(folder)
    return read_state(folder)


def places(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(value)


VALUES = st.sampled_from(
    [..., None, -1, 10**9, 10**40, 0.5, "x", "\x1b[31m", [], {}, [1], {"a": 1}, torch.zeros(()), torch.zeros(3, 2),
     torch.full((4,), 7), torch.zeros(5, dtype=torch.uint8), {"$tensor": "nothing"}]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), VALUES)
def test_an_edited_state_under_a_right_digest_is_one_sentence_or_a_learner_that_learns(
    saved, tmp_path_factory, place, value
):
    folder, (tree, header) = tmp_path_factory.mktemp("edited"), deepcopy(saved)
    found = list(places({"tree": tree, "header": header}))[2:]
    holder, key = found[place % len(found)]
    if value is ...:
        del holder[key]
    else:
        holder[key] = deepcopy(value)
    with suppress(TypeError):  # no file could hold it
        write_state(folder, tree, header)
    told = ""
    try:
        learner = Learner.load(folder)
        if learner.image_shape is not None:
            learner.learn(torch.rand(4, 3, 8, 8), [0, 1, 2, 3])
            learner.predict(torch.rand(2, 3, 8, 8))
            learner.scores_by_all(torch.rand(2, 3, 8, 8))
            learner.losses()
    except S6modError as error:
        told = str(error)
    assert told.isprintable()
    assert "\n" not in told


@pytest.mark.parametrize("saved", [("er", None)], indirect=True)
@pytest.mark.parametrize("told", ["shape", "memory_size", "d_inner"])
def test_a_state_asks_for_no_more_memory_than_it_holds(saved, tmp_path, told):
    tree, header = deepcopy(saved)
    if told == "shape":
        tree["host"]["image_shape"][1] = 10**9
    else:
        (header["config"] if told == "memory_size" else header["config"]["branch"])[told] = 10**9
    write_state(tmp_path, tree, header)
    with pytest.raises(S6modError, match=r"images of shape|65536"):
        Learner.load(tmp_path)


@pytest.mark.parametrize("value", [torch.tensor(-10.0), torch.tensor(torch.inf), torch.zeros(1), 7, None])
@pytest.mark.parametrize("saved", [("der++", 0.9)], indirect=True)
def test_an_average_of_no_number_of_updates_is_one_sentence(saved, tmp_path, value):
    tree, header = deepcopy(saved)
    tree["average"]["updates"] = value
    write_state(tmp_path, tree, header)
    with pytest.raises(CheckpointError, match="does not fit its configuration"):
        Learner.load(tmp_path)


@pytest.mark.parametrize("saved", [("der++", 0.9)], indirect=True)
def test_values_of_the_memory_are_those_of_its_rows(saved, tmp_path):
    tree, header = deepcopy(saved)
    values = tree["memory"]["values"]
    values |= {name: value[:1] for name, value in values.items()}
    write_state(tmp_path, tree, header)
    with pytest.raises(CheckpointError, match="does not fit its configuration"):
        Learner.load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"tensors": "../x"}, {"tensors": "/dev/zero"}, {"tensors": 7}, {"tree": 7}, {"sha256": 1}]
)
def test_a_state_whose_parts_are_something_else_is_damaged_whatever_its_digest_says(tmp_path, change):
    write_state(tmp_path, TREE, {})
    content = json.loads((tmp_path / "state.json").read_text()) | change
    del content["digest"]
    (tmp_path / "state.json").write_text(json.dumps({"digest": checkpoint._digest(content)} | content))
    with pytest.raises(CheckpointError, match="damaged or missing"):
        read_state(tmp_path)


@pytest.mark.parametrize("part", ["format", "header", "tensors", "sha256", "tree"])
def test_a_state_without_one_of_its_parts_is_one_sentence(tmp_path, part):
    write_state(tmp_path, TREE, {})
    content = json.loads((tmp_path / "state.json").read_text())
    del content["digest"], content[part]
    (tmp_path / "state.json").write_text(json.dumps({"digest": checkpoint._digest(content)} | content))
    with pytest.raises(CheckpointError, match="damaged" if part != "format" else "got format None"):
        read_state(tmp_path)
