import io
import os
import tarfile
import zipfile

import pytest

from s6mod.data import archives
from s6mod.data.archives import is_archive, sole_folder, unpack
from s6mod.errors import DataError

FILES = {"top/a.txt": b"one", "top/in/b.txt": b"two" * 1000}


def write_zip(path, files, change=lambda info: None):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            change(info)
            archive.writestr(info, content)


def write_tar(path, files, mode="w", change=lambda info: None):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            change(info)
            archive.addfile(info, io.BytesIO(content))


WRITERS = {
    "zip": write_zip,
    "tar": write_tar,
    "tar.gz": lambda path, files: write_tar(path, files, "w:gz"),
    "tar.xz": lambda path, files: write_tar(path, files, "w:xz"),
}


@pytest.fixture
def target(tmp_path):
    """A folder to unpack into, with a neighbour that nothing may touch."""
    (tmp_path / "neighbour").write_text("mine")
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", WRITERS)
def test_files_come_out_as_they_went_in(target, kind):
    archive = target.parent / f"a.{kind}"
    WRITERS[kind](archive, FILES)
    assert is_archive(archive)
    unpack(archive, target)
    assert tree(target) == FILES
    assert sole_folder(target) == target / "top"


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", ["../neighbour", "/tmp/s6mod-evil", "top/../../neighbour", "C:evil", "..\\neighbour"])
def test_a_name_that_leads_elsewhere_is_refused(target, kind, name):
    archive = target.parent / "evil"
    WRITERS[kind](archive, {"top/a": b"x", name: b"evil"})
    with pytest.raises(DataError, match="which leads elsewhere; do not trust it"):
        unpack(archive, target)
    assert (target.parent / "neighbour").read_text() == "mine"
    assert sorted(os.listdir(target.parent)) == ["evil", "neighbour", "target"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_in_a_tar_are_refused(target, kind):
    def change(info):
        info.type, info.linkname, info.size = kind, "/etc", 0

    write_tar(target.parent / "evil.tar", {"top": b""}, change=change)
    with pytest.raises(DataError, match="the link or device 'top'"):
        unpack(target.parent / "evil.tar", target)
    assert os.listdir(target) == []


def test_links_in_a_zip_are_refused(target):
    def change(info):
        info.external_attr = 0o120777 << 16

    write_zip(target.parent / "evil.zip", {"top": b"/etc"}, change)
    with pytest.raises(DataError, match="the link or device 'top'"):
        unpack(target.parent / "evil.zip", target)
    assert os.listdir(target) == []


def test_a_member_of_a_zip_without_a_name_is_refused(target):
    write_zip(target.parent / "nameless.zip", {"a": b"one"}, lambda info: setattr(info, "filename", ""))
    with pytest.raises(DataError, match="got a truncated or damaged one"):
        unpack(target.parent / "nameless.zip", target)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(target):
    for names in (["a", "a"], ["a", "./a"], ["a", "a/b"]):
        with tarfile.open(target.parent / "twice.tar", "w") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(name))
        with pytest.raises(DataError, match="each name once"):
            unpack(target.parent / "twice.tar", target)
        (target / "a").unlink()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_bomb_is_stopped_while_it_unpacks(target, monkeypatch, kind):
    archive = target.parent / "bomb"
    WRITERS[kind](archive, {"zeros": bytes(3 << 20)})
    monkeypatch.setattr(archives, "HARMLESS", 1 << 20)
    with pytest.raises(DataError, match="got more; do not trust it"):
        unpack(archive, target)
    assert sum(map(len, tree(target).values())) <= 1 << 20
    monkeypatch.setattr(archives, "HARMLESS", 4 << 20)
    monkeypatch.setattr(archives, "MAX_BYTES", 2 << 20)
    (target / "zeros").unlink()
    with pytest.raises(DataError, match="got more"):
        unpack(archive, target)


def test_an_archive_of_too_many_members_is_stopped(target, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    write_zip(target.parent / "many.zip", {f"{n}": b"" for n in range(11)})
    with pytest.raises(DataError, match="at most 10 members"):
        unpack(target.parent / "many.zip", target)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_damaged_archive_is_called_so(target, kind):
    archive = target.parent / "a"
    WRITERS[kind](archive, {"a": os.urandom(30_000), "b": os.urandom(30_000)})
    content = bytearray(archive.read_bytes())
    if kind == "zip":
        content[10_000] ^= 255  # its directory stands at the end, so a cut zip is no archive at all
    else:
        del content[20_000:]
    archive.write_bytes(content)
    with pytest.raises(DataError, match="a truncated or damaged one"):
        unpack(archive, target)


def test_the_shadows_that_macos_adds_stay_inside(target):
    write_zip(target.parent / "a.zip", FILES | {"__MACOSX/top/._a.txt": b"shadow"})
    unpack(target.parent / "a.zip", target)
    assert tree(target) == FILES


def test_a_password_and_a_full_disk_are_told(target, monkeypatch):
    write_zip(target.parent / "a.zip", FILES)
    content = bytearray((target.parent / "a.zip").read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    (target.parent / "locked.zip").write_bytes(content)
    with pytest.raises(DataError, match="without a password"):
        unpack(target.parent / "locked.zip", target)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.open", full)
    with pytest.raises(DataError, match="No space left on device; make room"):
        unpack(target.parent / "a.zip", target)


def test_what_is_no_archive_is_not_taken_for_one(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    write_zip(tmp_path / "a.npz", FILES)
    assert not any(is_archive(path) for path in (tmp_path, tmp_path / "a.txt", tmp_path / "a.npz", tmp_path / "none"))


def test_an_archive_that_breaks_off_in_its_first_file_is_called_damaged(target):
    archive = target.parent / "a.tar.gz"
    write_tar(archive, {"a": os.urandom(30_000)}, "w:gz")
    archive.write_bytes(archive.read_bytes()[:60])
    assert is_archive(archive)
    with pytest.raises(DataError, match="a truncated or damaged one"):
        unpack(archive, target)


def test_a_zip_with_a_name_that_is_no_text_is_called_damaged(target):
    archive = target.parent / "a.zip"
    write_zip(archive, {"é": b"x"})
    archive.write_bytes(archive.read_bytes().replace("é".encode(), b"\xff\xff"))
    with pytest.raises(DataError, match="a truncated or damaged one"):
        unpack(archive, target)


def test_hidden_files_beside_a_folder_do_not_hide_it(target):
    write_tar(target.parent / "a.tar", FILES | {"._top": b"shadow", ".DS_Store": b"x"})
    unpack(target.parent / "a.tar", target)
    assert sole_folder(target) == target / "top"
