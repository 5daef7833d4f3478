import sqlite3

import pytest

from s6mod.errors import CheckpointError
from s6mod.serve.journal import Journal
from s6mod.serve.settings import RefusedError


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal.db")
    yield made
    made.close()


def test_a_row_is_on_disk_when_it_is_told(journal, tmp_path):
    row = journal.learn("one", ["a", "b"], b"images")
    other = sqlite3.connect(tmp_path / "journal.db")
    assert other.execute("SELECT id, said, images FROM journal").fetchall() == [("one", '["a", "b"]', b"images")]
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert journal._ask("PRAGMA synchronous") == [(2,)]  # FULL: a commit waits for the disk
    assert row.answer() == {"id": "one", "number": 1, "images": 2}


def test_what_is_sent_again_gets_the_first_answer_and_no_second_row(journal):
    first = journal.learn("one", ["a"], b"images")
    journal.learn("two", ["a"], b"images")
    assert journal.learn("one", ["a"], b"images") == first
    assert journal.waiting(0) == 2


@pytest.mark.parametrize(("labels", "images"), [(["b"], b"images"), (["a"], b"others")])
def test_an_id_stands_for_one_batch(journal, labels, images):
    journal.learn("one", ["a"], b"images")
    with pytest.raises(RefusedError, match="expected what was sent under id 'one' before, got something else") as told:
        journal.learn("one", labels, images)
    assert told.value.status == 409
    assert journal.last() == 1


def test_rows_come_in_order_and_the_same_after_the_file_was_opened_again(journal, tmp_path):
    for name in "abc":
        journal.learn(name, [name], name.encode())
    again = Journal(tmp_path / "journal.db")
    number, found = 0, []
    while (row := again.after(number)) is not None:
        number = row.number
        found.append((row.said, row.images))
    again.close()
    assert found == [(["a"], b"a"), (["b"], b"b"), (["c"], b"c")]


def test_a_rollback_marks_what_came_after_its_snapshot_and_keeps_it(journal):
    journal.learn("before", ["a"], b"1")
    to = journal.snapshot("s").number
    journal.learn("after", ["b"], b"2")
    later = journal.snapshot("t").number
    back = journal.rollback("back", to, "asked")
    journal.learn("then", ["c"], b"3")
    assert back.answer() == {"id": "back", "number": back.number, "snapshot": to}
    assert journal.find("after").unlearned == back.number
    assert journal.find("after").images == b"2"
    assert journal.find("before").unlearned is None
    assert [row.number for row in journal.snapshots()] == [to]
    assert journal.after(to).id == "back"  # what was undone need not be done
    assert journal.labels_after(0) == {"a", "c"}
    with pytest.raises(RefusedError, match=f"expected a snapshot that is there, got {later}"):
        journal.rollback("further", later, "asked")


def test_a_rollback_is_there_with_its_marks_or_not_at_all(journal, monkeypatch):
    to = journal.snapshot("s").number
    journal.learn("after", ["a"], b"1")
    ask = journal._ask
    with monkeypatch.context() as broken:
        broken.setattr(
            journal, "_ask", lambda sentence, *values: 1 / 0 if "UPDATE" in sentence else ask(sentence, *values)
        )
        with pytest.raises(ZeroDivisionError):
            journal.rollback("back", to, "asked")
    assert (journal.rollbacks(), journal.waiting(0)) == ([], 1)


def test_of_two_rollbacks_that_wait_the_later_counts(journal):
    first = journal.snapshot("first").number
    second = journal.snapshot("second").number
    journal.rollback("to the second", second, "asked")
    last = journal.rollback("to the first", first, "asked")
    assert journal.after(first) == last  # the second snapshot is undone, and perhaps was never taken
    assert journal.rollbacks_after(0) == {first}


def test_images_are_dropped_but_ids_and_what_was_unlearned_are_not(journal):
    journal.learn("one", ["a"], b"1")
    to = journal.snapshot("s").number
    journal.learn("undone", ["a"], b"2")
    journal.rollback("back", to, "asked")
    last = journal.learn("last", ["a"], b"3").number
    journal.drop_images(0, last)
    assert [journal.find(id).images for id in ("one", "undone", "last")] == [None, b"2", b"3"]
    assert journal.learn("one", ["a"], b"1").number == 1


def test_a_file_that_is_no_journal_is_told(tmp_path):
    (tmp_path / "journal.db").write_text("nothing of the kind" * 100)
    with pytest.raises(CheckpointError, match=r"expected a database in .*journal.db"):
        Journal(tmp_path / "journal.db")
