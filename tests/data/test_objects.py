"""Data sets of other libraries, played by small classes that do what theirs do."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from s6mod.data import Dataset
from s6mod.errors import ConfigError, DataError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (8, 6, 5, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2, 0, 1]


class MapStyle:
    """As torchvision's data sets: rows by number, and the class names."""

    def __init__(self, images, labels, classes=None):
        self.images, self.labels = images, labels
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.images[row], self.labels[row]


class Split(MapStyle):
    """As ``datasets.Dataset``: rows are dictionaries, columns have names and features."""

    column_names = ("image", "label")
    names = None

    @property
    def features(self):
        return {"image": object(), "label": type("ClassLabel", (), {"names": self.names})()}

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.labels
        return {"image": self.images[key], "label": self.labels[key]}


class Endless(torch.utils.data.IterableDataset):
    """Says how long it is, as some do, but has no rows by number."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([])


FORMS = {
    "pillow": lambda pixels: Image.fromarray(pixels),
    "array": lambda pixels: pixels,
    "float array": lambda pixels: pixels / 255,
    "tensor": lambda pixels: torch.from_numpy(pixels.transpose(2, 0, 1).copy()),
    "float tensor": lambda pixels: torch.from_numpy(pixels.transpose(2, 0, 1) / 255),
}


@pytest.mark.parametrize("form", FORMS)
def test_map_style_data_sets_of_every_form(form):
    images = [FORMS[form](pixels) for pixels in PIXELS]
    labels = [torch.tensor(label) for label in LABELS] if "tensor" in form else LABELS
    dataset = Dataset.from_torch(MapStyle(images, labels), MapStyle(images[:3], labels[:3]), name="mine")
    assert np.array_equal(dataset.train_images.permute(0, 2, 3, 1), PIXELS)
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist()) == (LABELS, LABELS[:3])
    assert (dataset.name, dataset.class_names) == ("mine", ("0", "1", "2"))


def test_class_names_come_from_the_object_or_the_caller():
    data = MapStyle(PIXELS, LABELS, ["a", "b", "c"])
    assert Dataset.from_torch(data, data).class_names == ("a", "b", "c")
    assert Dataset.from_torch(data, data, class_names=["x", "y", "z"]).class_names == ("x", "y", "z")


def test_images_of_several_sizes_need_a_size():
    images = [PIXELS[0], PIXELS[1][:4], *PIXELS[2:]]
    with pytest.raises(DataError, match=r"images of one size, got 4x5 in row 1 of train after 6x5; give size="):
        Dataset.from_torch(MapStyle(images, LABELS), MapStyle(images, LABELS))
    dataset = Dataset.from_torch(MapStyle(images, LABELS), MapStyle(images, LABELS), size=8)
    assert dataset.image_shape == (3, 8, 8)


def test_a_dictionary_of_splits_brings_its_names():
    train, test = Split(PIXELS, LABELS), Split(PIXELS[:3], LABELS[:3])
    train.names = test.names = ["cat", "dog", "owl"]
    for splits, options in (
        ({"train": train, "test": test}, {}),
        ({"train": train, "validation": test, "unsupervised": train}, {}),
        ({"train": train, "extra": test}, {"test": "extra"}),
        (train, {"test": test}),
    ):
        dataset = Dataset.from_huggingface(splits, **options)
        assert dataset.class_names == ("cat", "dog", "owl")
        assert (len(dataset.train_labels), len(dataset.test_labels)) == (8, 3)


def test_one_split_is_divided_by_the_seed():
    first, second, other = (
        Dataset.from_huggingface(Split(PIXELS[:6], LABELS[:6]), test_fraction=0.5, split_seed=seed)
        for seed in (0, 0, 3)
    )
    assert sorted(first.test_labels.tolist()) == [0, 1, 2]
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_undecoded_images_and_labels_that_are_words():
    def encoded(pixels):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "png")
        return {"bytes": stream.getvalue(), "path": None}

    words = ["owl" if label else "cat" for label in LABELS]
    data = Split([encoded(pixels) for pixels in PIXELS], words)
    dataset = Dataset.from_huggingface(data, test=data)
    assert np.array_equal(dataset.train_images.permute(0, 2, 3, 1), PIXELS)
    assert dataset.class_names == ("cat", "owl")
    assert dataset.train_labels.tolist() == [min(label, 1) for label in LABELS]


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (
            lambda: Dataset.from_huggingface(Split(PIXELS, LABELS), image="img"),
            "the columns img and label in train, got",
        ),
        (lambda: Dataset.from_huggingface({"test": Split(PIXELS, LABELS)}), "a split 'train', got test"),
        (lambda: Dataset.from_huggingface({"train": Split(PIXELS, LABELS)}, test="val"), "a split 'val', got train"),
        (
            lambda: Dataset.from_huggingface(iter([])),
            "which only iterates; loop over it and give each batch to Learner",
        ),
        (lambda: Dataset.from_torch(MapStyle([], []), MapStyle([], [])), "rows in train, got none"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, [0.5] * 8)] * 2), "class ids .* got 0.5 at position 0"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, [0] * 7 + [-1])] * 2), "class ids .* got -1 at position 7"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, [0] * 7 + [10**9])] * 2), "without gaps, got label 1000000000"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS * 1.0, LABELS)] * 2), r"row 0 of train: expected float images"),
        (lambda: Dataset.from_torch(*[MapStyle(["a.png"] * 8, LABELS)] * 2), "row 0 of train: expected images"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, ["a", "b"] * 4)] * 2, class_names=["a", "c"]), "got 'b'; name"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, ["", "b"] * 4, ["a", "b"])] * 2), "got ''; name every class"),
        (lambda: Dataset.from_torch(*[MapStyle(PIXELS, [2**70] * 8, ["a", "b"])] * 2), "labels in 0..1, got 11805916"),
        (
            lambda: Dataset.from_torch(*[MapStyle(PIXELS, torch.eye(8))] * 2),
            r"class ids .* got an array \(8,\) at position 0",
        ),
        (
            lambda: Dataset.from_torch(*[MapStyle(PIXELS, np.eye(8))] * 2),
            r"class ids .* got an array \(8,\) at position 0",
        ),
        (lambda: Dataset.from_torch(*[Split(PIXELS, LABELS)] * 2), r"\(image, label\) in row 0 of train, got dict"),
        (lambda: Dataset.from_torch([(PIXELS[0],)], [(PIXELS[0],)]), r"\(image, label\) in row 0 of train, got tuple"),
        (lambda: Dataset.from_torch(*[MapStyle([[[1, 2], [3]]] * 8, LABELS)] * 2), "row 0 of train: expected images"),
        (lambda: Dataset.from_torch(Endless(), Endless()), "which only iterates; loop over it"),
    ],
)
def test_mistakes_are_one_sentence(make, hint):
    with pytest.raises(DataError, match=hint):
        make()


def test_a_size_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="a size of 8 pixels or more, got 0"):
        Dataset.from_torch(*[MapStyle(PIXELS, LABELS)] * 2, size=0)
