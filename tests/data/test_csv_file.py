import numpy as np
import pytest

from s6mod.data import Dataset
from s6mod.errors import DataError


@pytest.fixture
def table(tmp_path, draw):
    """Write a table of ``name,label[,split]`` lines, and the images that it names."""

    def write(*lines, header="path,label,split"):
        for line in lines:
            name = line.split(",")[0]
            if name.endswith(".png") and not (tmp_path / name).exists():
                draw(tmp_path / name)
        file = tmp_path / "table.csv"
        file.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8-sig")
        return file

    return write


def test_a_column_says_which_split(table, tmp_path, draw):
    pixels = draw(tmp_path / "in" / "b.png")
    dataset = Dataset.from_path(table("a.png,dog,train", "in/b.png,cat,train", "c.png,cat,test", "d.png,dog,val"))
    assert dataset.class_names == ("cat", "dog")
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist()) == ([1, 0], [0, 1])
    assert np.array_equal(dataset.train_images[1].permute(1, 2, 0), pixels)


def test_without_the_column_a_share_is_held_out(table):
    rows = [f"{number}.png,{'ab'[number % 2]}" for number in range(10)]
    dataset = Dataset.from_path(table(*rows, header="path,label"), test_fraction=0.4)
    assert dataset.test_labels.bincount().tolist() == [2, 2]


def test_numbers_as_labels_are_ordered_as_numbers(table):
    rows = [f"{split}{label}.png,{label},{split}" for split in ("train", "test") for label in (10, 2, 0)]
    dataset = Dataset.from_path(table(*rows))
    assert dataset.class_names == ("0", "2", "10")
    assert dataset.train_labels.tolist() == [2, 1, 0]


def test_so_are_numbers_with_a_sign_or_a_point_and_long_ones(table):
    labels = ("10.0", "2", "-1", "9" * 5000)
    rows = [f"{split}{n}.png,{label},{split}" for split in ("train", "test") for n, label in enumerate(labels)]
    assert Dataset.from_path(table(*rows)).class_names == ("-1", "2", "10.0", "9" * 5000)


@pytest.mark.parametrize(
    ("lines", "header", "hint"),
    [
        (["a.png,cat"], "file,class", "the columns path, label and perhaps split in .*, got file, class; name them"),
        ([], "", "got none; name them in the first line"),
        (["a.png,cat,train", "b.png,,test"], "path,label,split", "a label in .*line 3, got none"),
        (["a.png,cat,train", "b.png"], "path,label,split", "a label in .*line 3, got none"),
        (["a.png,cat,trian"], "path,label,split", "train, test or val as split in .*line 2, got 'trian'"),
        (["nowhere.jpg,cat,train"], "path,label,split", r"the image .*nowhere\.jpg of .*line 2, got no such file"),
        (["a.png,cat,train", "b.png,dog,train"], "path,label,split", "rows of split 'test' in .*, got none"),
        (["a.png,cat,train", "b.png,dog,test"], "path,label,split", "training image of every class .*none of 'dog'"),
        (["a.png,cat,train", "b.png,cat,test"], "path,label,split", "at least two classes, got 1"),
        ([], "path,label", "rows of images in .*, got none; add some"),
        (["a.png,cat", "b.png,dog,test"], "path,label", "2 columns in .*line 3, got more; quote what holds a comma"),
        (["a.png,cat,1"], "path,label,label", "the column label once in .*, got it 2 times"),
        (
            ["a.png,cat,train", "./a.png,cat,test"],
            "path,label,split",
            r"each image once, got .*a\.png again in .*line 3",
        ),
        (["a.png,cat", f"{'x' * 300},cat"], "path,label", r"the image .*x of .*line 3, got no such file; mend"),
    ],
)
def test_mistakes_are_one_sentence(table, lines, header, hint):
    with pytest.raises(DataError, match=hint):
        Dataset.from_path(table(*lines, header=header))


def test_links_and_other_encodings_are_refused(table, tmp_path):
    file = table("a.png,cat,train", "b.png,dog,test")
    (tmp_path / "b.png").unlink()
    (tmp_path / "b.png").symlink_to("a.png")
    with pytest.raises(DataError, match="the symbolic link"):
        Dataset.from_path(file)
    file.write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(DataError, match="a CSV file in UTF-8"):
        Dataset.from_path(file)
