import errno
import os

import pytest

from s6mod.files import aside, why_not, write_new, write_whole


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


def test_the_place_aside_is_this_process_own_and_is_cleared_whatever_happens(tmp_path):
    def write():
        with aside(tmp_path / "file") as place:
            place.write_text("half of")
            assert os.listdir(tmp_path) == [f".file.{os.getpid()}.part"]
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
