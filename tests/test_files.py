import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time

import pytest

from s6mod.data import Dataset, load
from s6mod.errors import ConfigError
from s6mod.files import (
    STALE,
    aside,
    clear_aside,
    expanded,
    parse_json,
    read_json,
    usable,
    why_not,
    write_new,
    write_whole,
)
from s6mod.learner import Learner


@pytest.fixture
def full(monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("content", ["new: ä", "new: ä".encode()])
def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path, content):
    file = tmp_path / "file"
    for text in ("old", content):
        write_whole(file, text)
    assert file.read_bytes() == "new: ä".encode()
    assert os.listdir(tmp_path) == ["file"]


def test_the_name_of_a_file_that_is_no_text_is_written_as_its_bytes(tmp_path):
    write_whole(tmp_path / "file", os.fsdecode(b"f\xfcr"))
    assert (tmp_path / "file").read_bytes() == b"f\xfcr"


@pytest.mark.parametrize("write", [write_whole, write_new])
@pytest.mark.usefixtures("full")
def test_what_finds_no_room_leaves_the_old_file_and_is_told_by_the_name_that_the_user_knows(tmp_path, write):
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(OSError, match="No space") as caught:
        write(file, "new")
    assert caught.value.filename == str(file)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_there_is_not_overwritten_by_what_is_to_be_new(tmp_path):
    file = tmp_path / "file"
    assert write_new(file, "first")
    assert not write_new(file, "second")
    assert file.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


def test_the_place_aside_is_this_call_s_own_and_is_cleared_whatever_happens(tmp_path):
    def write():
        with aside(tmp_path / "file") as place, aside(tmp_path / "file") as another:
            assert place != another
            place.write_text("half of")
            assert os.listdir(tmp_path) == [place.name]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(NotADirectoryError), aside(tmp_path / "file" / "below") as place:
        place.write_text("")


def test_a_full_disk_is_said_in_words_and_so_is_anything_else():
    assert why_not(OSError(errno.EDQUOT, "Quota exceeded")) == ("the disk is full", "free some space and try again")
    assert why_not(PermissionError(errno.EACCES, "Permission denied"))[0] == "Permission denied"


WRITING = """
import sys
from pathlib import Path
from s6mod.files import write_whole

file, letter = Path(sys.argv[1]), sys.argv[2]
for number in range(150):
    write_whole(file, letter * 20_000)
    content = file.read_text()
    assert len(content) == 20_000 and len(set(content)) == 1, f"a torn file at write {number}"
"""


def write_as_process_one(file, letter):
    os.getpid = lambda: 1
    sys.argv = ["", file, letter]
    exec(WRITING)


def test_two_processes_of_one_number_as_in_two_containers_do_not_tear_each_other_s_files(tmp_path):
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=write_as_process_one, args=(str(tmp_path / "file"), name)) for name in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert os.listdir(tmp_path) == ["file"]


ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
can_unshare = shutil.which("unshare") and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare, reason="no pid namespaces here")
def test_two_pid_namespaces_write_one_file_without_tearing_it(tmp_path):
    command = [*ALONE, sys.executable, "-c", WRITING, str(tmp_path / "file")]
    both = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in "ab"]
    assert [process.communicate()[1] for process in both] == ["", ""]
    assert os.listdir(tmp_path) == ["file"]


def test_what_killed_processes_left_aside_is_cleared_once_nobody_can_be_writing_to_it(tmp_path):
    names = (".old.json.7.part", ".old.json.0123456789abcdef.part", ".new.json.0123456789abcdef.part", "mine.part")
    for name in names:
        (tmp_path / name).touch()
        if "new" not in name:
            os.utime(tmp_path / name, (time.time() - STALE - 1,) * 2)
    clear_aside(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".new.json.0123456789abcdef.part", "mine.part"]
    clear_aside(tmp_path, older_than=0)
    assert os.listdir(tmp_path) == ["mine.part"]
    clear_aside(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "[" * 101 + "]" * 101, "{", "", "\x00"])
def test_json_that_does_not_parse_or_is_nested_beyond_reason_is_the_same_damage(text):
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=r"nested|Expecting"):
            parse_json(given)


def test_json_is_read_however_wide_it_is():
    rows = [[[1.5, "[" * 200]] * 30] * 30
    assert parse_json(json.dumps({"a": rows})) == {"a": rows}
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json(json.dumps("[" * 200)) == "[" * 200


@pytest.mark.usefixtures("impatient")
def test_a_pipe_or_a_device_is_not_read(tmp_path):
    """One might wait for ever, the other fill the memory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match="a pipe or a device"):
            read_json(tmp_path / name)
    (tmp_path / "file").write_text("[1]")
    (tmp_path / "link").symlink_to("file")
    assert read_json(tmp_path / "link") == [1]


def test_a_home_that_nobody_has_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/x") == tmp_path / "x"
    with pytest.raises(ConfigError, match=r"expected a home folder for ~nobody-at-all/x, .*; give the whole path"):
        expanded("~nobody-at-all/x")


@pytest.mark.parametrize("path", ["a" * 5000, "x/" * 2500, "a\0b", "a\ud800b"])
def test_a_path_that_no_file_can_have_is_one_short_sentence_wherever_it_is_given(path):
    learner = Learner(num_classes=2)
    for take in (usable, expanded, Learner.load, learner.save, Dataset.from_path, lambda path: load("own", path)):
        with pytest.raises(ConfigError, match="expected a path that a file can have") as caught:
            take(path)
        assert len(str(caught.value)) < 300
        assert str(caught.value).isprintable()


def test_a_path_that_is_not_there_can_be_used(tmp_path):
    assert usable(tmp_path / "none" / "at all") == tmp_path / "none" / "at all"
    (tmp_path / "file").touch()
    assert usable(tmp_path / "file" / "below") == tmp_path / "file" / "below"
