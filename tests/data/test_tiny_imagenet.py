"""A small folder in the layout of the official archive."""

import numpy as np
import pytest
from PIL import Image

from s6mod.data.official import OFFICIAL
from s6mod.errors import DataError

WNIDS = ["n02124075", "n04067472", "n01443537"]  # as in wnids.txt: in no order


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    (root / "val" / "images").mkdir(parents=True)
    (root / "test" / "images").mkdir(parents=True)
    lines = []
    for label, wnid in enumerate(WNIDS):
        (root / "train" / wnid / "images").mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
        for number in range(2):
            Image.new("RGB", (64, 64), (80 * label, 0, 0)).save(
                root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG"
            )
        name = f"val_{7 - label}.JPEG"
        Image.new("L", (64, 64), 80 * label).save(root / "val" / "images" / name)  # some official images are grey
        lines.append(f"{name}\t{wnid}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    words = {"n02124075": "Egyptian cat", "n04067472": "reel", "n01443537": "goldfish, Carassius auratus", "n9": "x"}
    (root / "words.txt").write_text("".join(f"{wnid}\t{word}\n" for wnid, word in sorted(words.items())))
    return root


def read(root, **options):
    return OFFICIAL["tiny-imagenet"].source(root, **options).dataset()


def test_labels_are_lines_of_wnids_and_the_validation_split_is_the_test_split(folder):
    dataset = read(folder.parent)
    assert dataset.class_names == ("Egyptian cat", "reel", "goldfish")
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist()) == ([0, 0, 1, 1, 2, 2], [0, 1, 2])
    assert dataset.image_shape == (3, 64, 64)
    assert np.allclose(dataset.train_images[:, 0].float().mean((1, 2)), [0, 0, 80, 80, 160, 160], atol=3)
    assert np.allclose(dataset.test_images.float().mean((2, 3)).T, [0, 80, 160], atol=3)


def test_classes_of_one_name_are_told_apart(folder):
    (folder / "words.txt").write_text(f"{WNIDS[0]}\tcrane\n{WNIDS[1]}\tcrane\n")
    assert read(folder).class_names == (f"crane ({WNIDS[0]})", f"crane ({WNIDS[1]})", WNIDS[2])


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda f: (f / "words.txt").unlink(), r"the file .*words\.txt, got: No such file"),
        (lambda f: (f / "train" / WNIDS[0]).rename(f / "gone"), "the images of class n02124075"),
        (lambda f: (f / "val" / "images" / "val_7.JPEG").unlink(), r"the validation image .*val_7\.JPEG, got no such"),
        (lambda f: (f / "val" / "val_annotations.txt").unlink(), r"val_annotations\.txt, got: No such file"),
        (lambda f: (f / "val" / "val_annotations.txt").write_text("../../x\tn02124075\n"), r"got '\.\./\.\./x"),
        (
            lambda f: (f / "val" / "val_annotations.txt").write_text("val_7.JPEG\tn1\n"),
            r"a class of wnids\.txt in each",
        ),
        (lambda f: (f / "wnids.txt").write_text(WNIDS[0]), r"a class of wnids\.txt"),
        (lambda f: (f / "words.txt").write_bytes(b"\xff\xff"), r"text in .*words\.txt"),
        (lambda f: (f / "train" / WNIDS[0] / "images" / "l.JPEG").symlink_to(f), "the symbolic link"),
        (
            lambda f: (f / "train" / WNIDS[2] / "images" / f"{WNIDS[2]}_1.JPEG").write_text("x"),
            r"readable image in .*_1",
        ),
    ],
)
def test_mistakes_are_one_sentence(folder, change, hint):
    change(folder)
    with pytest.raises(DataError, match=hint):
        read(folder)


def test_an_unreadable_image_may_be_passed_over(folder):
    bad = folder / "train" / WNIDS[2] / "images" / f"{WNIDS[2]}_1.JPEG"
    bad.write_text("x")
    source = OFFICIAL["tiny-imagenet"].source(folder, skip_bad=True)
    assert len(source.dataset().train_labels) == 5
    assert source.skipped == [str(bad)]
