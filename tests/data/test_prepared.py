import errno
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from s6mod.data import Dataset
from s6mod.data.prepared import describe, prepare, read_prepared
from s6mod.data.source import Source, Split
from s6mod.errors import DataError

RNG = np.random.default_rng(0)
TRAIN, TEST = (RNG.integers(0, 256, (n, 3, 9, 7), dtype=np.uint8) for n in (7, 4))  # odd: labels are not aligned
DATASET = Dataset.from_arrays(TRAIN, [0, 1, 1, 0, 1, 0, 1], TEST, [1, 0, 1, 0], ("a cat", "ein Hünd"), "pets")


def source(train=None, test=None, count=7):
    train = train or (lambda: iter([(TRAIN[:3], np.array([0, 1, 1])), (TRAIN[3:], np.array([0, 1, 0, 1]))]))
    test = test or (lambda: iter([(TEST, np.array([1, 0, 1, 0]))]))
    return Source("pets", ("a cat", "ein Hünd"), (3, 9, 7), Split(count, train), Split(4, test), "somewhere")


@pytest.fixture
def file(tmp_path):
    prepare(source(), tmp_path / "pets.safetensors")
    return tmp_path / "pets.safetensors"


def test_what_was_prepared_is_read(file):
    dataset = read_prepared(file)
    assert dataset.fingerprint == DATASET.fingerprint
    assert (dataset.name, dataset.class_names) == ("pets", ("a cat", "ein Hünd"))
    about = describe(file)
    assert (about.counts, about.image_shape, about.origin) == ((7, 4), (3, 9, 7), "somewhere")


def test_a_small_file_needs_no_threads(tmp_path, monkeypatch):
    """Where addresses end, Python may wait for ever for a thread that died as it started."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    prepare(source(), tmp_path / "f")
    assert read_prepared(tmp_path / "f").fingerprint == DATASET.fingerprint


def test_any_reader_of_safetensors_can_read_it(file):
    tensors = load_file(file)
    assert torch.equal(tensors["train_images"], DATASET.train_images)
    assert tensors["test_labels"].tolist() == [1, 0, 1, 0]


def test_equal_contents_give_equal_files_however_they_come(file, tmp_path):
    whole = source(train=lambda: iter([(TRAIN, np.array([0, 1, 1, 0, 1, 0, 1]))]))
    prepare(whole, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_a_data_set_saves_itself(tmp_path):
    DATASET.save(tmp_path / "mine.safetensors")
    again = Dataset.from_path(tmp_path / "mine.safetensors")
    assert (again.name, again.fingerprint) == ("pets", DATASET.fingerprint)
    assert Dataset.from_path(tmp_path / "mine.safetensors", name="mine").name == "mine"
    with pytest.raises(DataError, match="prepare it anew"):
        Dataset.from_path(tmp_path / "mine.safetensors", size=16)


def test_fewer_images_than_announced_are_what_there_is(tmp_path):
    prepare(source(count=1000), tmp_path / "f")
    assert read_prepared(tmp_path / "f").fingerprint == DATASET.fingerprint


def test_writing_to_the_images_leaves_the_file_as_it_is(file):
    before = file.read_bytes()
    read_prepared(file).train_images.zero_()
    assert file.read_bytes() == before


def test_a_changed_byte_is_noticed_wherever_it_is(file):
    content = bytearray(file.read_bytes())
    for position in range(0, len(content), 13):
        content[position] ^= 1
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"as it was prepared in .*pets\.safetensors, got a changed or damaged"):
            read_prepared(file)
        content[position] ^= 1
    file.write_bytes(content)
    assert read_prepared(file).fingerprint == DATASET.fingerprint


def test_a_file_cut_or_grown_is_noticed(file):
    content = file.read_bytes()
    for length in range(0, len(content), 101):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match="changed or damaged"):
            read_prepared(file)
    file.write_bytes(content + b"\0")
    with pytest.raises(DataError, match="changed or damaged"):
        read_prepared(file)


def test_a_header_of_an_absurd_length_is_not_read(file):
    file.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(DataError, match="changed or damaged"):
        describe(file)
    with pytest.raises(DataError, match="No such file"):
        describe(file.with_name("nothing"))
    file.write_bytes((10**5).to_bytes(8, "little") + b"[" * 10**5)  # of an absurd depth
    with pytest.raises(DataError, match="changed or damaged"):
        describe(file)


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(file, monkeypatch):
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"to write 2,079 bytes to .*, but the disk is full; nothing was kept; free"):
        prepare(source(), file)
    assert os.listdir(file.parent) == [file.name]
    assert file.read_bytes() == before


def test_a_reader_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield TRAIN[:3], np.array([0, 1, 1])
        raise DataError("expected a readable image")

    with pytest.raises(DataError, match="readable image"):
        prepare(source(train=broken), tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_what_is_no_data_set_leaves_nothing(tmp_path):
    one_class = source(train=lambda: iter([(TRAIN, np.zeros(7, np.int64))]))
    with pytest.raises(DataError, match=r"a training image of every class, got none for class 1 \('ein Hünd'\)"):
        prepare(one_class, tmp_path / "f")
    with pytest.raises(DataError, match="non-empty"):
        prepare(source(test=lambda: iter([])), tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_class_names_must_differ_and_be_two():
    with pytest.raises(DataError, match=r"class names that differ, got 'a' 2 times; rename or join"):
        replace(source(), class_names=("a", "b", "a"))
    with pytest.raises(DataError, match="at least two classes, got 1; add images of another"):
        replace(source(), class_names=("a",))


@pytest.mark.skipif(sys.platform != "linux", reason="reads its own peak from /proc")
def test_preparing_and_loading_hold_little_more_than_the_arrays(tmp_path):
    program = """
import pathlib, sys, numpy as np, torch
from s6mod.data import Dataset
from s6mod.data.acquire import acquire_own
from s6mod.data.prepared import read_prepared
from s6mod.data.split import Reading

torch.set_num_threads(1)
root = pathlib.Path(sys.argv[1])
def peak():
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
def begin():
    open("/proc/self/clear_refs", "w").write("5")
    return peak()
def write():
    images = np.random.default_rng(0).integers(0, 256, (20000, 3, 32, 32), dtype=np.uint8)
    np.savez(root / "a.npz", images=images, labels=np.arange(20000) % 10)
write()
size = 20000 * 3 * 32 * 32
before = begin()
acquire_own(root / "a.npz", root, "a", Reading(), lambda *_: None)
print((peak() - before) / size)
before = begin()
dataset = read_prepared(root / "a.safetensors")
assert dataset.train_images.max() + dataset.test_images.max() == 254  # every byte was looked at
print((peak() - before) / size)
del dataset
before = begin()
dataset = Dataset.from_path(root / "a.npz")
print((peak() - before) / size)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    preparing, loading, unprepared = map(float, done.stdout.split())
    assert preparing < 0.5
    assert 0.9 < loading < 1.2  # all of it is there, and little else
    assert unprepared < 1.2
