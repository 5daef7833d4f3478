import os
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from s6mod import Learner
from s6mod.engine.checkpoint import STATE, Snapshot, read_state
from s6mod.errors import CheckpointError, ConfigError, InputError
from s6mod.serve import run
from s6mod.serve.service import Reader
from s6mod.serve.settings import Limits, RefusedError
from s6mod.serve.writer import Writer
from services import RULES, batch, small, wait_until


def send(service, *numbers, classes=("a", "b")):
    for number in numbers:
        images, labels = batch(number, classes)
        service.accept(images, labels, f"batch {number}")


def learned(service):
    wait_until(lambda: service.waiting == 0 and service.journal.after(service.state.number) is None)


def same_bits(folder, *numbers):
    """Whether the checkpoint is that of a learner that has learned these batches and nothing else."""
    learner = small()
    for number in numbers:
        learner.learn(*batch(number))
    expected, found = Snapshot.of(learner.state_dict(), {}), Snapshot.of(read_state(folder / "checkpoint")[0], {})
    alike = all(torch.equal(tensor, found.tensors[name]) for name, tensor in expected.tensors.items())
    return alike and found.plain == expected.plain


def killed(opened, *numbers, checkpoint_after=None):
    """The folder as a kill leaves it: the journal has it all, the checkpoint is an earlier one."""
    with opened() as service:
        send(service, *numbers[:checkpoint_after])
    shutil.copytree(opened.folder / "checkpoint", opened.folder.parent / "earlier")
    with opened() as service:
        send(service, *numbers[checkpoint_after:])
    shutil.rmtree(opened.folder / "checkpoint")
    (opened.folder.parent / "earlier").rename(opened.folder / "checkpoint")


def test_after_a_kill_every_batch_is_learned_once(opened):
    killed(opened, 1, 2, 3, 4, 5, checkpoint_after=2)
    assert same_bits(opened.folder, 1, 2)
    with opened() as service:
        learned(service)
        send(service, 2, 5, 6)  # two of them again
    assert same_bits(opened.folder, 1, 2, 3, 4, 5, 6)


def test_a_rollback_unlearns_what_came_after_its_snapshot_also_after_a_kill(opened):
    with opened() as service:
        send(service, 1, 2)
        to = service.take_snapshot("here")["number"]
        send(service, 3)
    shutil.copytree(opened.folder / "checkpoint", opened.folder.parent / "earlier")
    with opened() as service:
        service.roll_back("back", to)
        send(service, 4)
        learned(service)
        assert service.status()["journal"]["unlearned"] == 1
        assert service.batch("batch 3")["state"] == "unlearned"
        assert service.batch("batch 4")["state"] == "learned"
    assert same_bits(opened.folder, 1, 2, 4)
    shutil.rmtree(opened.folder / "checkpoint")
    (opened.folder.parent / "earlier").rename(opened.folder / "checkpoint")
    with opened() as service:
        learned(service)
    assert same_bits(opened.folder, 1, 2, 4)


def test_it_goes_back_by_itself_when_accuracy_falls(opened, monkeypatch):
    monkeypatch.setattr("s6mod.serve.state.ENOUGH", 4)
    with opened(replace(RULES, fall=30)) as service:
        monkeypatch.setattr("s6mod.serve.writer.right", lambda _, labels: torch.ones(len(labels), dtype=torch.bool))
        send(service, 1, 2, 3, 4)
        service.take_snapshot("good")
        learned(service)
        monkeypatch.setattr("s6mod.serve.writer.right", lambda _, labels: torch.zeros(len(labels), dtype=torch.bool))
        send(service, 5, 6, 7, 8)
        wait_until(lambda: service.journal.rollbacks() and service.journal.after(service.state.number) is None)
        [told] = service.snapshots()["rollbacks"]
        assert told["why"].startswith("accuracy fell from 100.0 to ")
        assert service.state.account.accuracy() == 100
    assert same_bits(opened.folder, 1, 2, 3, 4)


def test_a_full_queue_answers_429_but_knows_what_it_has(opened, monkeypatch):
    with opened(limits=Limits(waiting=2)) as service:
        monkeypatch.setattr(service, "_next", lambda: False)
        wait_until(lambda: service.state.number == 1)
        send(service, 1, 2)
        with pytest.raises(RefusedError, match="expected at most 2 batches that wait") as told:
            send(service, 3)
        assert (told.value.status, told.value.retry) == (429, 1)
        send(service, 2)


def test_more_classes_than_allowed_are_refused_before_they_are_accepted(opened):
    with opened(limits=Limits(classes=2)) as service:
        send(service, 1)
        with pytest.raises(ValueError, match="expected at most 2 classes, got one more"):
            send(service, 2, classes=("a", "c"))
        assert service.journal.last() == 2


def test_batches_that_come_at_once_are_checked_one_after_the_other(opened, monkeypatch):
    with opened(limits=Limits(classes=2)) as service:
        asked = service.journal.labels_after
        monkeypatch.setattr(service.journal, "labels_after", lambda number: (asked(number), time.sleep(0.05))[0])
        images = batch(1)[0][:1]
        with ThreadPoolExecutor(4) as threads:
            sent = [threads.submit(service.accept, images, [name], name) for name in "abcd"]
        assert sum(each.exception() is None for each in sent) == 2


def test_a_class_in_another_type_is_refused_before_it_is_accepted(opened, monkeypatch):
    with opened() as service:
        send(service, 1, classes=("0", "b"))
        learned(service)
        monkeypatch.setattr(service, "_next", lambda: False)
        send(service, 2, classes=("0", 5))  # it waits
        for classes, told in (((0, "b"), "'0' as a string"), (("b", "5"), "5 as an integer"), ((7, "7"), "7 as an")):
            with pytest.raises(InputError, match=f"^expected the class {told}"):
                send(service, 3, classes=classes)
        assert service.journal.last() == 3
        send(service, 2, classes=("0", 5))  # it is known still


def test_what_an_older_version_accepted_in_both_types_is_learned_as_it_did(opened):
    with opened() as service:
        for number, classes in ((1, ("0", "1")), (2, ("1", 0))):
            images, labels = batch(number, classes)
            service.journal.learn(f"batch {number}", labels, images.tobytes())
        learned(service)
        send(service, 3, classes=("0", 0))
    loaded, expected = Learner.load(opened.folder), small()
    for number, classes in ((1, ("a", "b")), (2, ("b", "c")), (3, ("a", "c"))):
        expected.learn(*batch(number, classes))
    assert loaded.classes_ == ["0", "1", 0]
    found, tensors = (Snapshot.of(each.state_dict(), {}).tensors for each in (loaded, expected))
    assert found.keys() == tensors.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in tensors.items())


def test_learning_that_fails_stops_and_says_so_while_predictions_go_on(opened, monkeypatch, capsys):
    with opened() as service:
        send(service, 1)
        learned(service)
        wait_until(lambda: service.shown.published is not None)
        monkeypatch.setattr(service.state.learner, "learn", lambda *_: 1 / 0)
        send(service, 2)
        wait_until(lambda: service.failure is not None)
        assert service.status()["failure"] == "ZeroDivisionError: division by zero"
        assert service.shown.published.predict(batch(1)[0]).tolist()
        with pytest.raises(RefusedError, match="got one that has stopped: ZeroDivisionError"):
            send(service, 3)
    assert "learning has stopped" in capsys.readouterr().err
    with opened() as service:
        learned(service)
    assert same_bits(opened.folder, 1, 2)


def test_a_batch_that_stops_learning_can_be_rolled_back(opened, monkeypatch, capsys):
    with opened() as service:
        send(service, 1)
        to = service.take_snapshot("here")["number"]
        learned(service)
        monkeypatch.setattr(service.state.learner, "learn", lambda *_: 1 / 0)
        send(service, 2)
        wait_until(lambda: service.failure is not None)
        service.roll_back("back", to)
    capsys.readouterr()
    with opened() as service:
        learned(service)
        assert service.batch("batch 2")["state"] == "unlearned"
    assert same_bits(opened.folder, 1)


def test_ids_that_the_service_would_use_itself_may_be_taken(opened):
    with opened(replace(RULES, snapshot_every=1)) as service:
        service.accept(*batch(1), "by itself at row 2")
        learned(service)
        send(service, 2)
        learned(service)
        assert service.failure is None
    assert same_bits(opened.folder, 1, 2)


def test_a_fall_goes_back_to_a_snapshot_of_before_by_an_id_that_is_free(opened):
    writer = Writer(opened.folder, None, Limits(), replace(RULES, fall=30))
    best = writer.journal.snapshot("best").number
    writer.journal.describe(best, {"accuracy": 100.0})
    writer.journal.snapshot(f"fall at row {best}")
    writer.state.account.accuracy = lambda: 10.0
    found = []
    for number in (best - 1, best, best + 1):  # a replay, which is not there yet; an id that a client has taken
        writer.state = writer.state.at(number)
        writer._mind_the_fall()
        found.append([row.said["to"] for row in writer.journal.rollbacks()])
    writer.stop()
    assert found == [[], [], [best]]


def test_a_journal_that_cannot_be_tidied_is_a_trouble_and_no_failure(opened, monkeypatch, capsys):
    with opened() as service:
        send(service, 1)
        learned(service)
        full = sqlite3.OperationalError("database or disk is full")
        monkeypatch.setattr(service.journal, "rollbacks_after", lambda *_: (_ for _ in ()).throw(full))
    assert (service.failure, service.trouble) == (None, "database or disk is full")
    assert "no checkpoint: " in capsys.readouterr().err
    assert same_bits(opened.folder, 1)


@pytest.mark.parametrize("broken", ["describe", "snapshot", "rollback"])
def test_a_disk_that_is_full_for_the_journal_stops_no_learning(opened, monkeypatch, capsys, broken):
    looks, full = [], sqlite3.OperationalError("database or disk is full")

    def fail(*_):
        looks.append(1)
        raise full

    with opened(replace(RULES, snapshot_every=2, fall=30)) as service:
        best = service.take_snapshot("best")["number"]
        learned(service)
        with monkeypatch.context() as patched:
            patched.setattr(service.journal, broken, fail)
            if broken == "rollback":
                service.journal.describe(best, {"accuracy": 100.0})
                patched.setattr(service.state.account, "accuracy", lambda: 10.0)
            send(service, 1, 2, 3)
            if broken != "describe":  # it has no effect; else the snapshot is taken again and again
                learned(service)
            wait_until(lambda: looks)
        learned(service)
    assert (service.failure, service.trouble) == (None, None)
    assert same_bits(opened.folder, 1, 2, 3)


def test_what_became_of_a_batch_is_of_one_moment(opened, monkeypatch):
    writer = Writer(opened.folder, None, Limits(), RULES)
    row, find = writer.journal.learn("batch", ["a"], b""), writer.journal.find

    def refused_right_after(id):
        found = find(id)
        writer.journal.note(row.number, "why")
        writer.state = writer.state.at(row.number)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(writer.journal, "find", refused_right_after)
        assert writer.batch("batch")["state"] == "waiting"
    assert writer.batch("batch")["state"] == "refused"
    writer.stop()


def test_a_snapshot_that_the_checkpoint_before_goes_back_to_stays(opened):
    """A disk that loses power may bring that checkpoint back."""
    writer = Writer(opened.folder, None, Limits(), replace(RULES, snapshots=1))
    to = writer.journal.snapshot("to").number

    def there_after_a_checkpoint():
        while writer._next():
            pass
        writer._checkpoint()
        return to in {row.number for row in writer.journal.snapshots()}, writer.files.snapshot(to).exists()

    assert there_after_a_checkpoint() == (True, True)
    writer.journal.rollback("back", to, "asked")
    writer.journal.snapshot("later")
    assert there_after_a_checkpoint() == (True, True)
    send(writer, 1)
    assert there_after_a_checkpoint() == (False, False)
    writer.stop()


def test_a_checkpoint_that_was_not_written_is_none(opened, capsys):
    writer = Writer(opened.folder, None, Limits(), RULES)
    send(writer, 1)
    while writer._next():
        pass
    place, writer.files.checkpoint = writer.files.checkpoint, writer.files.journal / "no folder"
    writer._checkpoint()
    writer._checkpoint()
    assert writer.status()["journal"]["checkpoint"] == 0
    assert capsys.readouterr().err.count(f"no checkpoint: {writer.trouble}") == 1
    writer.files.checkpoint = place
    writer._checkpoint()
    assert (writer.status()["journal"]["checkpoint"], writer.trouble) == (2, None)
    writer.stop()


def test_a_snapshot_that_was_not_written_is_none_unless_a_rollback_waits_for_it(opened):
    writer = Writer(opened.folder, None, Limits(), RULES)
    writer._next()  # of the start
    (opened.folder / "snapshots").rename(opened.folder / "elsewhere")
    (opened.folder / "snapshots").write_text("in the way")
    writer.journal.snapshot("first")
    writer._next()
    assert [row.id for row in writer.journal.snapshots()] == ["start"]
    second = writer.journal.snapshot("second").number
    writer.journal.rollback("back", second, "asked")
    with pytest.raises(CheckpointError, match="expected to save"):
        writer._next()
    assert [row.id for row in writer.journal.snapshots()] == ["start", "second"]
    writer.stop()


def test_no_more_snapshots_wait_than_a_few(opened):
    writer = Writer(opened.folder, None, Limits(), RULES)  # the one of the start waits too
    for number in range(7):
        writer.take_snapshot(f"snapshot {number}")
    with pytest.raises(RefusedError, match="expected at most 8 snapshots that wait") as told:
        writer.take_snapshot("another")
    assert told.value.status == 429
    writer.stop()


def test_who_has_nothing_to_learn_rests(opened, monkeypatch):
    with opened() as service:
        send(service, 1)
        learned(service)
        looks, after = [], service.journal.after
        monkeypatch.setattr(service.journal, "after", lambda number: looks.append(1) or after(number))
        time.sleep(0.2)
        assert len(looks) < 5


def test_images_that_the_checkpoint_before_needs_stay(opened):
    writer = Writer(opened.folder, None, Limits(), replace(RULES, snapshots=1))
    found = []
    for number in (1, 2, 3):
        send(writer, number)
        writer.journal.snapshot(f"after {number}")
        while writer._next():
            pass
        writer._checkpoint()
        found.append([writer.journal.find(f"batch {each}").images is None for each in range(1, number + 1)])
    writer.stop()
    assert found == [[False], [True, False], [True, True, False]]


def test_old_snapshots_and_images_go(opened):
    rules = replace(RULES, snapshots=1, snapshot_every=2)
    for numbers in ((1, 2, 3), (4, 5), (6,)):
        with opened(rules) as service:
            send(service, *numbers)
    with opened(rules) as service:
        [left] = service.snapshots()["snapshots"]
        assert left["batches"] == 6
        assert service.journal.find("batch 1").images is None
        send(service, 1)  # it is known still
        assert service.journal.waiting(0) == 6
    assert [folder.name for folder in (opened.folder / "snapshots").iterdir()] == [f"{left['number']:09d}"]
    assert same_bits(opened.folder, 1, 2, 3, 4, 5, 6)


def test_a_folder_has_one_writer_and_any_number_of_readers(opened):
    with opened() as service:
        send(service, 1)
        learned(service)
        with pytest.raises(ConfigError, match="expected no other service in"):
            Writer(opened.folder, None, Limits(), RULES)
    reader = Reader(opened.folder, None, Limits())
    assert reader.status()["batches"] == 1
    reader.stop()


def test_a_reader_follows_its_writer(opened, monkeypatch):
    monkeypatch.setattr("s6mod.serve.service.PAUSE", 0.01)
    reader = Reader(opened.folder, None, Limits())
    reader.start()
    try:
        assert reader.shown.published is None
        with opened() as service:
            send(service, 1, 2)
        wait_until(lambda: reader.status()["batches"] == 2)
        assert (
            reader.shown.published.predict(batch(1)[0]).tolist() == service.state.learner.predict(batch(1)[0]).tolist()
        )
    finally:
        reader.stop()


def test_a_reader_of_a_writer_that_has_ended_tells_the_age_of_its_checkpoint(opened):
    with opened() as service:
        send(service, 1)
    state, hour_ago = service.files.checkpoint / STATE, time.time() - 3600
    os.utime(state, (hour_ago, hour_ago))
    reader = Reader(opened.folder, None, Limits())
    assert reader.status()["published"]["seconds_ago"] >= 3600


def test_a_reader_that_cannot_read_says_why_once_and_goes_on(opened, monkeypatch, capsys):
    monkeypatch.setattr("s6mod.serve.service.PAUSE", 0.01)
    looks = []
    with monkeypatch.context() as broken:
        reader = Reader(opened.folder, None, Limits())
        broken.setattr("s6mod.serve.service.read", lambda *_: looks.append(1) or 1 / 0)
        reader._seen = None  # as if it had been replaced
        reader.start()
        wait_until(lambda: len(looks) > 2)
        assert reader.trouble == "ZeroDivisionError: division by zero"
    try:
        wait_until(lambda: reader.trouble is None)
    finally:
        reader.stop()
    assert capsys.readouterr().err.count("no newer checkpoint") == 1


def test_a_service_goes_on_from_a_saved_learner(tmp_path):
    learner = small()
    learner.learn(*batch(1))
    learner.save(tmp_path / "saved")
    run.prepare(tmp_path / "service", lambda: Learner.load(tmp_path / "saved"), (32, 32))
    service = Writer(tmp_path / "service", None, Limits(), RULES)
    service.start()
    assert service.size == (8, 8)  # the learner's, whatever was asked
    send(service, 2)
    service.stop()
    assert same_bits(tmp_path / "service", 1, 2)


def test_a_first_start_that_was_killed_is_begun_anew(tmp_path):
    (tmp_path / "service" / "checkpoint").mkdir(parents=True)
    (tmp_path / "service" / "lost+found").mkdir()  # the root of a disk
    assert run.prepare(tmp_path / "service", small, (8, 8))
    assert not run.prepare(tmp_path / "service", small, (8, 8))


def test_the_folder_opens_as_a_learner(opened):
    with opened() as service:
        send(service, 1)
    assert Learner.load(opened.folder).classes_ == ["a", "b"]


def test_a_journal_that_is_gone_is_told(opened):
    with opened() as service:
        send(service, 1)
    (opened.folder / "journal.db").unlink()
    with pytest.raises(
        CheckpointError, match="expected a journal with row 2, which the checkpoint holds, got one that ends at 0"
    ):
        Writer(opened.folder, None, Limits(), RULES)
