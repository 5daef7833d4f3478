import os
import shutil

import numpy as np
import pytest
import torch

from s6mod.data import Dataset
from s6mod.errors import ConfigError, DataError


def test_class_folders_become_a_data_set(tmp_path, draw):
    pixels = {
        (split, name): draw(tmp_path / split / name / "1.png") for split in ("train", "test") for name in ("cat", "dog")
    }
    dataset = Dataset.from_path(tmp_path, name="pets")
    assert (dataset.name, dataset.class_names, dataset.image_shape) == ("pets", ("cat", "dog"), (3, 16, 16))
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist()) == ([0, 1], [0, 1])
    assert np.array_equal(dataset.train_images[1].permute(1, 2, 0), pixels["train", "dog"])
    assert np.array_equal(dataset.test_images[0].permute(1, 2, 0), pixels["test", "cat"])


def test_val_serves_as_test_and_test_goes_first(tmp_path, draw):
    for split in ("train", "val"):
        for name in "ab":
            draw(tmp_path / split / name / "1.png")
    with_val = Dataset.from_path(tmp_path)
    assert len(with_val.test_labels) == 2
    for name in "ab":
        for number in range(3):
            draw(tmp_path / "test" / name / f"{number}.png")
    assert len(Dataset.from_path(tmp_path).test_labels) == 6


def test_without_splits_a_share_of_each_class_is_held_out_by_the_seed(photos, draw):
    for number in range(5, 20):
        draw(photos / "cat" / f"{number}.png")
    first = Dataset.from_path(photos, test_fraction=0.3)
    assert first.test_labels.bincount().tolist() == [6, 2]  # 0.3 of 20 and of 5, rounded
    assert first.train_labels.bincount().tolist() == [14, 3]
    assert Dataset.from_path(photos, test_fraction=0.3).fingerprint == first.fingerprint
    other = Dataset.from_path(photos, test_fraction=0.3, split_seed=1)
    assert other.fingerprint != first.fingerprint

    def everything(dataset):
        return sorted(image.numpy().tobytes() for image in torch.cat([dataset.train_images, dataset.test_images]))

    assert everything(other) == everything(first)
    assert len(set(everything(first))) == 25


def test_the_place_of_a_folder_does_not_matter(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "elsewhere" / "photos")
    assert Dataset.from_path(tmp_path / "elsewhere" / "photos").fingerprint == Dataset.from_path(photos).fingerprint


def test_images_keep_a_small_common_size_or_are_resized(photos, draw):
    assert Dataset.from_path(photos).image_shape == (3, 16, 16)
    assert Dataset.from_path(photos, size=8).image_shape == (3, 8, 8)
    draw(photos / "cat" / "wide.jpg", (40, 20), "L")
    assert Dataset.from_path(photos).image_shape == (3, 32, 32)
    for name in ("cat", "dog"):
        shutil.rmtree(photos / name)
        for number in range(2):
            draw(photos / name / f"{number}.png", (200, 200))  # photographs: too large to keep
    assert Dataset.from_path(photos).image_shape == (3, 32, 32)


def test_folders_inside_a_class_belong_to_it_and_other_files_are_left(photos, draw):
    draw(photos / "cat" / "more" / "x.png")
    (photos / "cat" / "notes.txt").write_text("not an image")
    (photos / "cat" / ".hidden.png").write_text("not an image")
    (photos / ".git").mkdir()
    for name in ("paper.pdf", "features.h5", "clip.mpg"):  # Pillow knows these names, but decodes none of them
        (photos / "cat" / name).write_bytes(b"not an image")
    dataset = Dataset.from_path(photos)
    assert (dataset.train_labels == 0).sum() + (dataset.test_labels == 0).sum() == 6


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda root, draw: shutil.rmtree(root / "dog"), "at least two classes, got 1; add images"),
        (lambda root, draw: (root / "owl").mkdir(), r"images in .*owl, got none; add some, or remove the empty class"),
        (lambda root, draw: [shutil.rmtree(root / n) for n in ("cat", "dog")], "a folder for each class in .*got none"),
        (lambda root, draw: draw(root / "owl" / "1.png"), "at least two images of class 'owl', .*got 1; add some"),
        (lambda root, draw: draw(root / "train" / "a" / "1.png"), "test or val beside train in .*got neither"),
        (lambda root, draw: draw(root / "test" / "a" / "1.png"), "train beside test in .*got none; add it"),
        (lambda root, draw: (root / "dog" / "3.png").write_text("x"), r"readable image in .*3\.png, got .*--skip-bad"),
        (lambda root, draw: (root / "dog" / "l.png").symlink_to("/etc/passwd"), "the symbolic link .*l.png; replace"),
        (lambda root, draw: (root / "owl").symlink_to(root / "dog"), "the symbolic link .*owl; replace"),
        (lambda root, draw: os.mkfifo(root / "dog" / "p.png"), "the device or pipe .*p.png; remove"),
        (
            lambda root, draw: [(root / old).rename(root / new) for old, new in (("cat", "Testing"), ("dog", "Train"))],
            "a folder for each class in .*, got the splits Testing, Train; name them train and test",
        ),
    ],
)
def test_mistakes_are_one_sentence(photos, draw, change, hint):
    change(photos, draw)
    with pytest.raises(DataError, match=hint) as error:
        Dataset.from_path(photos)
    assert "\n" not in str(error.value)


def test_splits_must_have_the_same_classes(tmp_path, draw):
    for path in ("train/a/1.png", "train/b/1.png", "test/a/1.png"):
        draw(tmp_path / path)
    with pytest.raises(DataError, match=r"a test image of every class in image folder .*, got none of 'b'; add one"):
        Dataset.from_path(tmp_path)
    for path in ("test/b/1.png", "test/c/1.png"):
        draw(tmp_path / path)
    with pytest.raises(DataError, match="got a further one, 'c'; add it to train"):
        Dataset.from_path(tmp_path)
    (tmp_path / "test").rename(tmp_path / "real")
    (tmp_path / "test").symlink_to(tmp_path / "real")
    with pytest.raises(DataError, match=r"the symbolic link .*test"):
        Dataset.from_path(tmp_path)


def test_an_unreadable_image_may_be_passed_over(photos):
    whole = Dataset.from_path(photos)
    (photos / "dog" / "3.png").write_text("x")
    dataset = Dataset.from_path(photos, skip_bad=True)
    assert len(dataset.train_labels) + len(dataset.test_labels) == 9
    assert dataset.image_shape == whole.image_shape  # a broken header does not spoil the common size
    for number in range(5):
        (photos / "dog" / f"{number}.png").write_text("x")
    with pytest.raises(DataError, match=r"a training image of every class, got none for class 1 \('dog'\)"):
        Dataset.from_path(photos, skip_bad=True)


def test_a_path_that_is_no_data_is_refused(tmp_path):
    with pytest.raises(DataError, match="got nothing there; check the path"):
        Dataset.from_path(tmp_path / "nowhere")
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(DataError, match=r"an image folder, an .npz or a .csv file, got .*thesis\.tex"):
        Dataset.from_path(tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"size": 0}, "a size of 8 pixels or more, got 0"),
        ({"size": 7}, "got 7"),
        ({"size": 16.0}, "got 16.0"),
        ({"test_fraction": 0}, "a test_fraction between 0 and 1, got 0"),
        ({"test_fraction": 5}, "got 5"),
        ({"test_fraction": float("nan")}, "got nan"),
    ],
)
def test_options_that_mean_nothing_are_refused(photos, options, hint):
    with pytest.raises(ConfigError, match=hint):
        Dataset.from_path(photos, **options)
