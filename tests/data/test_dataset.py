from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from s6mod.data import Dataset
from s6mod.errors import DataError, InputError


def arrays(train=(0, 1, 2, 0, 1, 2), test=(0, 1, 2)):
    rng = np.random.default_rng(0)
    shapes = [(len(train), 3, 4, 4), (len(test), 3, 4, 4)]
    images = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    return images[0], np.array(train), images[1], np.array(test)


@pytest.fixture
def dataset():
    return Dataset.from_arrays(*arrays())


def test_arrays_become_a_data_set(dataset):
    x, y, tx, ty = arrays()
    assert np.array_equal(dataset.train_images.numpy(), x)
    assert np.array_equal(dataset.test_images.numpy(), tx)
    assert dataset.train_labels.tolist() == y.tolist()
    assert dataset.test_labels.tolist() == ty.tolist()
    assert (dataset.num_classes, dataset.image_shape) == (3, (3, 4, 4))
    assert dataset.class_names == ("0", "1", "2")
    assert repr(dataset) == "Dataset('arrays': 6 training and 3 test images of 3 classes, 3x4x4, on cpu)"


def test_numpy_and_torch_bytes_and_floats_give_the_same_data_set(dataset):
    x, y, tx, ty = arrays()
    as_torch = Dataset.from_arrays(torch.tensor(x), torch.tensor(y), torch.tensor(tx), torch.tensor(ty))
    as_float = Dataset.from_arrays(x / 255, y, tx / 255, ty)
    assert dataset.fingerprint == as_torch.fingerprint == as_float.fingerprint


def test_later_writes_to_the_arrays_do_not_reach_the_data_set():
    x, y, tx, ty = arrays()
    dataset = Dataset.from_arrays(x, y, tx, ty)
    before = dataset.train_images.clone(), dataset.train_labels.clone()
    x[:], y[:] = 0, 0
    assert torch.equal(dataset.train_images, before[0])
    assert torch.equal(dataset.train_labels, before[1])


def test_it_is_frozen(dataset):
    with pytest.raises(FrozenInstanceError):
        dataset.name = "other"


def test_moving_takes_the_images_and_leaves_the_labels(dataset):
    moved = dataset.to("meta")
    assert {moved.train_images.device.type, moved.test_images.device.type} == {"meta"}
    assert {moved.train_labels.device.type, moved.test_labels.device.type} == {"cpu"}
    assert dataset.train_images.device.type == "cpu"


def test_the_fingerprint_names_the_contents_and_nothing_else(dataset):
    assert replace(dataset, name="other").fingerprint == dataset.fingerprint
    assert len(dataset.fingerprint) == 12
    pixel = dataset.train_images.clone()
    pixel[0, 0, 0, 0] += 1
    changed = [
        replace(dataset, train_images=pixel),
        replace(dataset, train_labels=dataset.train_labels.roll(1)),
        replace(dataset, test_images=dataset.test_images.flip(0)),
        replace(dataset, class_names=("a", "b", "c")),
    ]
    assert len({d.fingerprint for d in [dataset, *changed]}) == 5


def test_a_class_without_images_is_named():
    x, y, tx, ty = arrays(train=(0, 2, 2))
    with pytest.raises(DataError, match=r"a training image of every class, got none for class 1 \('1'\)"):
        Dataset.from_arrays(x, y, tx, ty)
    x, y, tx, ty = arrays(test=(0, 1))
    with pytest.raises(DataError, match=r"a test image of every class, got none for class 2 \('owl'\)"):
        Dataset.from_arrays(x, y, tx, ty, class_names=("cat", "dog", "owl"))


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"class_names": ("only",)}, "at least two classes, got 1"),
        ({"class_names": ("a", "b")}, "labels in 0..1, got 2"),
        ({"train_images": torch.zeros(6, 3, 4, 4)}, "uint8"),
        ({"train_images": torch.zeros(6, 4, 4, dtype=torch.uint8)}, r"\(N, C, H, W\)"),
        ({"train_images": torch.zeros(0, 3, 4, 4, dtype=torch.uint8)}, "non-empty"),
        ({"train_labels": torch.zeros(6)}, "int64"),
        ({"train_labels": torch.tensor([0, 1, 2])}, "6 images and 3 labels"),
        ({"test_labels": torch.tensor([0, 1, -1])}, "got -1"),
        ({"test_images": torch.zeros(3, 3, 8, 8, dtype=torch.uint8)}, r"\(3, 4, 4\) and \(3, 8, 8\)"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(dataset, change, hint):
    with pytest.raises(DataError, match=hint) as error:
        replace(dataset, **change)
    assert str(error.value).startswith("data set 'arrays': expected ")


def test_arrays_that_are_no_images_or_labels_are_refused():
    x, y, tx, ty = arrays()
    with pytest.raises(InputError, match=r"looks like \(N, H, W, C\)"):
        Dataset.from_arrays(x.transpose(0, 2, 3, 1), y, tx, ty)
    with pytest.raises(InputError, match="expected 6 labels"):
        Dataset.from_arrays(x, y[:-1], tx, ty)
    with pytest.raises(InputError, match="got 2 at position 2"):
        Dataset.from_arrays(x, y, tx, ty, class_names=("cat", "dog"))


def test_a_huge_label_is_refused_before_a_name_is_made_for_each_number_below_it():
    x, y, tx, ty = arrays()
    with pytest.raises(DataError, match=f"got label {10**15} among 6"):
        Dataset.from_arrays(x, np.where(y == 2, 10**15, y), tx, ty)


@pytest.mark.parametrize("names", [np.array(["a", "b", "c"]), ["a", "b", "c"], "abc"])
def test_class_names_are_plain_texts_however_they_come(tmp_path, names):
    x, y, tx, ty = arrays()
    dataset = Dataset.from_arrays(x, y, tx, ty, class_names=names)
    assert [type(name) for name in dataset.class_names] == [str] * 3
    assert dataset.fingerprint == Dataset.from_arrays(x, y, tx, ty, class_names=("a", "b", "c")).fingerprint


def test_numbers_as_class_names_survive_saving(tmp_path):
    x, y, tx, ty = arrays()
    dataset = Dataset.from_arrays(x, y, tx, ty, class_names=[3, 4, 5])
    dataset.save(tmp_path / "a.safetensors")
    assert Dataset.from_path(tmp_path / "a.safetensors").fingerprint == dataset.fingerprint


def test_a_home_folder_is_found_again_by_who_saves_and_who_reads(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    dataset.save("~/a.safetensors")
    assert Dataset.from_path("~/a.safetensors").fingerprint == dataset.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
