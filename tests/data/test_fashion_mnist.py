"""Small idx files under the official names."""

import gzip
import struct

import numpy as np
import pytest

from s6mod.data.official import OFFICIAL
from s6mod.errors import DataError

RNG = np.random.default_rng(0)
IMAGES = {"train": RNG.integers(0, 256, (30, 28, 28), np.uint8), "t10k": RNG.integers(0, 256, (20, 28, 28), np.uint8)}
LABELS = {"train": (np.arange(30) % 10).astype(np.uint8), "t10k": (np.arange(20) % 10).astype(np.uint8)}


def idx(array, sizes=None):
    sizes = array.shape if sizes is None else sizes
    return struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + array.tobytes()


def write(folder, suffix="", pack=lambda content: content):
    folder.mkdir(exist_ok=True)
    for prefix in IMAGES:
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(IMAGES[prefix])))
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(LABELS[prefix])))
    return folder


def read(root):
    return OFFICIAL["fashion-mnist"].source(root).dataset()


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress)])
def test_idx_files_are_read_gzipped_or_not(tmp_path, suffix, pack, monkeypatch):
    monkeypatch.setattr("s6mod.data.source.BLOCK_BYTES", 3 * 28 * 28 * 7)  # several blocks, the last one smaller
    write(tmp_path / "fashion-mnist", suffix, pack)
    dataset = read(tmp_path)
    for channel in range(3):
        assert np.array_equal(dataset.train_images[:, channel], IMAGES["train"])
    assert np.array_equal(dataset.test_images[:, 0], IMAGES["t10k"])
    assert dataset.train_labels.tolist() == LABELS["train"].tolist()
    assert dataset.class_names[0] == "T-shirt/top"
    assert dataset.class_names[9] == "Ankle boot"
    assert read(tmp_path / "fashion-mnist").fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("file", "content", "hint"),
    [
        ("train-images-idx3-ubyte", idx(IMAGES["train"], (2**32 - 1, 28, 28)), "sensible sizes in .*, got"),
        ("train-images-idx3-ubyte", idx(IMAGES["train"], (30, 2**31, 2**31)), "sensible sizes in .*, got"),
        ("train-images-idx3-ubyte", idx(IMAGES["train"], (31, 28, 28)), "30 images of 28x28 .* got 31 of 28x28"),
        ("train-images-idx3-ubyte", idx(IMAGES["train"], (30, 14, 56)), "30 images of 28x28 .* got 30 of 14x56"),
        ("train-images-idx3-ubyte", idx(IMAGES["train"])[:-1], "promises, got fewer"),
        ("train-images-idx3-ubyte", idx(IMAGES["train"]) + b"x", "promises, got more"),
        ("train-images-idx3-ubyte", b"<html>not found</html>", "an idx file of bytes in 3 dimensions"),
        ("t10k-labels-idx1-ubyte", idx(LABELS["t10k"], (2**32 - 1,)), "sensible sizes"),
        ("t10k-labels-idx1-ubyte", idx(LABELS["t10k"], (10**7,)), "promises, got fewer"),
        ("t10k-labels-idx1-ubyte", idx(LABELS["t10k"] + 5), "labels in 0..9, got 1"),
        ("t10k-labels-idx1-ubyte", b"", "promises, got fewer"),
        ("t10k-labels-idx1-ubyte", None, "t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz in .*, got neither"),
    ],
)
def test_files_that_are_not_the_official_ones_are_refused(tmp_path, file, content, hint):
    folder = write(tmp_path)
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    with pytest.raises(DataError, match=hint):
        read(folder)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize("damage", [lambda c: c[:-100], lambda c: c[:-4], lambda c: c[:-8] + bytes(4) + c[-4:]])
def test_a_broken_gzip_file_is_refused(tmp_path, name, damage):
    folder = write(tmp_path, ".gz", gzip.compress)
    file = folder / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match="promises, got fewer"):
        read(folder)
