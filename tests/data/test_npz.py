import io
import pickle
import zipfile

import numpy as np
import pytest

from s6mod.data import Dataset
from s6mod.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (12, 3, 8, 9), dtype=np.uint8)
Y = np.arange(12) % 3
PARTS = {"train_images": X[:6], "train_labels": Y[:6], "test_images": X[6:], "test_labels": Y[6:]}


def read(tmp_path, save=np.savez, options=None, **arrays):
    save(tmp_path / "a.npz", **arrays)
    return Dataset.from_path(tmp_path / "a.npz", **(options or {}))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_four_arrays_are_a_data_set(tmp_path, save):
    dataset = read(tmp_path, save, class_names=np.array(["x", "y", "z"]), **PARTS)
    assert dataset.fingerprint == Dataset.from_arrays(X[:6], Y[:6], X[6:], Y[6:], ("x", "y", "z")).fingerprint
    assert dataset.name == "a"


def test_channels_may_come_last_be_missing_or_be_floats(tmp_path):
    def parts(change):
        return {key: change(value) if "images" in key else value for key, value in PARTS.items()}

    whole = read(tmp_path, **PARTS).fingerprint
    assert read(tmp_path, **parts(lambda x: x.transpose(0, 2, 3, 1).copy())).fingerprint == whole
    assert read(tmp_path, **parts(lambda x: (x / 255).astype(">f4"))).fingerprint == whole
    grey = read(tmp_path, **parts(lambda x: x[:, 0]))
    assert (grey.train_images == grey.train_images[:, :1]).all()
    assert np.array_equal(grey.train_images[:, 1], X[:6, 0])


def test_blocks_join_to_the_whole(tmp_path, monkeypatch):
    whole = read(tmp_path, images=X, labels=Y, options={"test_fraction": 0.5})
    monkeypatch.setattr("s6mod.data.source.BLOCK_BYTES", 500)  # two images
    again = read(tmp_path, images=X, labels=Y, options={"test_fraction": 0.5})
    assert again.fingerprint == whole.fingerprint
    assert whole.test_labels.bincount().tolist() == [2, 2, 2]
    for image, label in zip(whole.train_images.numpy(), whole.train_labels.tolist(), strict=True):
        [row] = np.flatnonzero((image == X).all((1, 2, 3)))
        assert Y[row] == label


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        (
            {"train_images": X, "train_labels": Y},
            "train_images, .* or images, labels in .*; add test_images, test_labels",
        ),
        ({"images": X}, "got images; add labels"),
        ({"images": X, "labels": Y / 2}, "labels in .*: expected integer labels, got float64"),
        ({"images": X, "labels": Y - 1}, "labels from 0 on, got -1"),
        ({"images": X, "labels": Y[:5]}, "5 images in images of .*, one for each label, got 12; match them"),
        ({"images": X, "labels": np.where(Y == 1, 10**12, Y)}, "labels 0..C-1 without gaps"),
        ({"images": X, "labels": Y * 2}, "labels 0..C-1 without gaps in .*, got 4 but no 1"),
        ({"images": X, "labels": Y * 0}, "at least two classes, got 1"),
        ({"images": X, "labels": Y, "class_names": np.array(["a", "b", "a"])}, "class names that differ, got 'a' 2"),
        ({"images": X, "labels": Y, "class_names": np.array(["a", "b"])}, "labels in 0..1, got 2"),
        ({"images": X.astype(np.int32), "labels": Y}, "uint8 images or floats .* got int32"),
        ({"images": X * 1.0, "labels": Y}, r"float images in \[0, 1\]"),
        ({"images": X[:, :2], "labels": Y}, r"C = 1 or 3 in images of .*, got \(12, 2, 8, 9\)"),
        ({"images": X[:, 0, 0], "labels": Y}, r"got \(12, 9\); reshape them"),
        ({"images": X[:, :, :7], "labels": Y}, "at least 8x8 pixels in .*, got 7x9; enlarge them"),
        ({"images": np.asfortranarray(X), "labels": Y}, "got columns first; save it anew"),
        ({"images": X.astype(object), "labels": Y}, "got Python objects; save it anew"),
        ({**PARTS, "test_images": X[6:, :, :5]}, "training and test images of one shape"),
        (
            {"images": X, "labels": Y, "class_names": np.array("xyz")},
            "class_names as a row of texts in .*, got .*shape \\(\\)",
        ),
        ({"images": X, "labels": Y, "class_names": np.array([["x"], ["y"], ["z"]])}, r"shape \(3, 1\)"),
        ({"images": X, "labels": Y, "class_names": np.array([0.0, 1.0, 2.0])}, "got float64"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, arrays, hint):
    with pytest.raises(DataError, match=hint):
        read(tmp_path, **arrays)


def test_a_size_is_refused_since_arrays_are_used_as_they_are(tmp_path):
    with pytest.raises(DataError, match="expected no size"):
        read(tmp_path, images=X, labels=Y, options={"size": 16})


def test_damaged_and_foreign_files_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **PARTS)
    content = (tmp_path / "a.npz").read_bytes()
    at = content.index(X[:6].tobytes()[:20])
    for damaged in (content[:-50], b"text", b"", content[:at] + b"?" + content[at + 1 :]):
        (tmp_path / "a.npz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz"):
            Dataset.from_path(tmp_path / "a.npz")


def test_any_damage_of_a_compressed_file_is_one_sentence(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **PARTS)
    content = (tmp_path / "a.npz").read_bytes()
    found = 0
    for position in range(0, len(content), 7):
        (tmp_path / "a.npz").write_bytes(content[:position] + b"\xf7" + content[position + 1 :])
        try:
            Dataset.from_path(tmp_path / "a.npz")  # a byte that says nothing of the arrays may be another
        except DataError as error:
            found += "a.npz" in str(error)
    assert found > len(content) // 14


def test_members_that_are_no_arrays_are_not_taken_for_them(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as opened:
        opened.writestr("images", "x")
        opened.writestr("labels", "x")
    with pytest.raises(DataError, match="got none; add images, labels"):
        Dataset.from_path(tmp_path / "a.npz")


def test_class_names_may_be_bytes_or_numbers(tmp_path):
    dataset = read(tmp_path, images=X, labels=Y, class_names=np.array(["ä".encode(), b"y", b"z"]))
    assert dataset.class_names == ("ä", "y", "z")
    assert read(tmp_path, images=X, labels=Y, class_names=np.array([7, 8, 9])).class_names == ("7", "8", "9")


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(f"{name}.npy", content)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def test_an_absurd_header_is_refused_before_memory_is_asked_for(tmp_path):
    lie = npy(Y).replace(b"(12,)", b"(10000000000000,)".ljust(5))
    archive(tmp_path / "a.npz", images=npy(X), labels=lie)
    with pytest.raises(DataError, match="a truncated or damaged file"):
        Dataset.from_path(tmp_path / "a.npz")


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("s6mod.data.archives.HARMLESS", 1000)
    archive(tmp_path / "a.npz", images=npy(np.zeros((4000, 3, 8, 8), np.uint8)), labels=npy(np.arange(4000) % 2))
    with pytest.raises(DataError, match="got more; do not trust it"):
        Dataset.from_path(tmp_path / "a.npz")


def test_a_pickle_inside_is_never_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    archive(tmp_path / "a.npz", images=npy(X), labels=npy(np.array([Evil()], object)))
    assert b"ran" in pickle.dumps(Evil())
    with pytest.raises(DataError, match="Python objects"):
        Dataset.from_path(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()
