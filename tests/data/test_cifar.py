"""Small files in the layouts of the official archives, written the three ways such files occur in."""

import pickle
import struct

import numpy as np
import pytest
import torch

from s6mod.data.official import OFFICIAL
from s6mod.errors import DataError


def python2(value) -> bytes:
    """Protocol 2 as Python 2 wrote the official files: every text is a byte string."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(k) + python2(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, np.ndarray):
        shape = b"".join(map(python2, value.shape)) + b"\x86"
        dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * python2(-1) + b"K\x00tb"
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + python2(value.tobytes()) + b"tb"
    text = value if isinstance(value, bytes) else value.encode()
    return b"T" + struct.pack("<i", len(text)) + text


WRITERS = {
    "python2": lambda values: b"\x80\x02" + python2(values) + b".",
    "protocol2": lambda values: pickle.dumps(values, 2),
    "protocol4": lambda values: pickle.dumps(values, 4),
}


def batch(rng, count, num_classes, key):
    labels = [k % num_classes for k in range(count)]
    pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
    return {"batch_label": "a batch", key: labels, "data": pixels, "filenames": [f"{k}.png" for k in range(count)]}


def write_cifar10(parent, write=WRITERS["protocol4"]):
    rng = np.random.default_rng(0)
    batches = {f"data_batch_{k}": batch(rng, 10 + k, 10, "labels") for k in range(1, 6)}
    batches["test_batch"] = batch(rng, 10, 10, "labels")
    names = [f"animal{k}" for k in range(10)]
    files = batches | {"batches.meta": {"num_cases_per_batch": 10, "label_names": names, "num_vis": 3072}}
    return _write(parent / "cifar-10-batches-py", files, write)


def write_cifar100(parent, write=WRITERS["protocol4"]):
    rng = np.random.default_rng(1)
    batches = {"train": batch(rng, 130, 100, "fine_labels"), "test": batch(rng, 100, 100, "fine_labels")}
    for values in batches.values():
        values["coarse_labels"] = [label // 5 for label in values["fine_labels"]]
    names = {"fine_label_names": [f"thing{k}" for k in range(100)], "coarse_label_names": ["kind"] * 20}
    return _write(parent / "cifar-100-python", batches | {"meta": names}, write)


def _write(folder, files, write):
    folder.mkdir()
    for name, values in files.items():
        (folder / name).write_bytes(write(values))
    return folder, files


def read(name, root):
    return OFFICIAL[name].source(root).dataset()


def as_images(rows):
    return torch.from_numpy(rows.reshape(-1, 3, 32, 32))


def test_the_python2_writer_of_this_test_speaks_what_python_understands():
    values = batch(np.random.default_rng(0), 3, 3, "labels")
    read = pickle.loads(WRITERS["python2"](values), encoding="bytes")
    assert np.array_equal(read[b"data"], values["data"])
    assert read[b"filenames"] == [b"0.png", b"1.png", b"2.png"]


@pytest.mark.parametrize("writer", WRITERS)
def test_cifar10_is_read_batch_after_batch(tmp_path, writer):
    _, files = write_cifar10(tmp_path, WRITERS[writer])
    dataset = read("cifar10", tmp_path)
    train = [files[f"data_batch_{k}"] for k in range(1, 6)]
    assert torch.equal(dataset.train_images, torch.cat([as_images(values["data"]) for values in train]))
    assert dataset.train_labels.tolist() == [label for values in train for label in values["labels"]]
    assert torch.equal(dataset.test_images, as_images(files["test_batch"]["data"]))
    assert dataset.class_names == tuple(f"animal{k}" for k in range(10))
    assert (dataset.name, dataset.image_shape) == ("cifar10", (3, 32, 32))


@pytest.mark.parametrize("writer", WRITERS)
def test_cifar100_is_read_with_its_fine_labels(tmp_path, writer):
    _, files = write_cifar100(tmp_path, WRITERS[writer])
    dataset = read("cifar100", tmp_path)
    assert torch.equal(dataset.train_images, as_images(files["train"]["data"]))
    assert dataset.train_labels.tolist() == files["train"]["fine_labels"]
    assert dataset.test_labels.tolist() == list(range(100))
    assert dataset.class_names[:2] == ("thing0", "thing1")
    assert (dataset.name, dataset.num_classes) == ("cifar100", 100)


def test_the_root_may_be_the_folder_itself_or_its_parent(tmp_path):
    folder, _ = write_cifar10(tmp_path)
    assert read("cifar10", folder).fingerprint == read("cifar10", tmp_path).fingerprint


def test_images_can_be_written_to_and_the_files_stay_as_they_are(tmp_path):
    write_cifar100(tmp_path)
    before = read("cifar100", tmp_path).fingerprint
    dataset = read("cifar100", tmp_path)
    dataset.train_images.zero_()
    dataset.test_images.zero_()
    assert read("cifar100", tmp_path).fingerprint == before


def test_missing_data_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(
        DataError,
        match=r"expected cifar10 in .*cifar-10-batches-py, got no file batches\.meta there; run s6mod data cifar10",
    ):
        read("cifar10", tmp_path)


def test_a_missing_batch_is_named(tmp_path):
    folder, _ = write_cifar10(tmp_path)
    (folder / "data_batch_3").unlink()
    with pytest.raises(DataError, match="data_batch_3, got: No such file"):
        read("cifar10", tmp_path)


def test_a_truncated_batch_is_named(tmp_path):
    folder, _ = write_cifar100(tmp_path)
    file = folder / "train"
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(DataError, match="train, got a truncated or damaged one; fetch the data set again"):
        read("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"data": np.zeros((10, 3071), np.uint8)}, r"rows of 3072 pixels .*got an array of shape \(10, 3071\)"),
        ({"data": [1, 2]}, "the ndarray 'data'"),
        ({"labels": [0] * 9}, "expected 10 labels"),
        ({"labels": [10] * 10}, "labels in 0..9, got 10"),
        ({"labels": ["cat"] * 10}, "labels as an array or list of numbers"),
        ({"labels": None}, "the list 'labels'"),
    ],
)
def test_a_batch_with_wrong_contents_is_named(tmp_path, change, hint):
    folder, files = write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps(files["test_batch"] | change, 4))
    with pytest.raises(DataError, match=hint) as error:
        read("cifar10", tmp_path)
    assert str(folder / "test_batch") in str(error.value)


def test_cifar100_is_not_taken_for_cifar10(tmp_path):
    folder, files = write_cifar10(tmp_path)
    for names in (["one"] * 100, [1] * 10):
        (folder / "batches.meta").write_bytes(pickle.dumps(files["batches.meta"] | {"label_names": names}))
        with pytest.raises(DataError, match=f"expected 10 class names in .*batches.meta, got {len(names)} entries"):
            read("cifar10", tmp_path)


def test_a_class_without_images_is_named(tmp_path):
    folder, files = write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps(files["test_batch"] | {"labels": [0] * 10}, 4))
    with pytest.raises(DataError, match=r"data set 'cifar10': .*none for class 1 \('animal1'\)"):
        read("cifar10", tmp_path)
