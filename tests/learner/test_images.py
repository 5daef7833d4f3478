"""Images in whatever form their owner has them are one batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import learners
from s6mod.errors import InputError
from s6mod.learner.images import as_batch, as_batch_for

RGB = torch.arange(2 * 3 * 8 * 9).reshape(2, 3, 8, 9).to(torch.uint8)
HWC = RGB.permute(0, 2, 3, 1).numpy()
BATCHES = {
    "channels first": RGB,
    "channels last": HWC,
    "channels last, torch": RGB.permute(0, 2, 3, 1),
    "a list of arrays": [HWC[0], HWC[1]],
    "a list of both": [Image.fromarray(HWC[0]), RGB[1]],
    "a list of PIL images": [Image.fromarray(image) for image in HWC],
    "floats": RGB / 255,
}


@pytest.mark.parametrize("name", BATCHES)
def test_every_form_is_the_same_batch(name):
    images, single = as_batch(BATCHES[name])
    assert torch.equal(images, RGB)
    assert not single


SINGLE = {"CHW": RGB[0], "HWC": HWC[0], "NumPy": RGB[0].numpy(), "PIL": Image.fromarray(HWC[0])}


@pytest.mark.parametrize("image", SINGLE.values(), ids=SINGLE)
def test_a_single_image_is_known_as_one(image):
    images, single = as_batch(image)
    assert torch.equal(images, RGB[:1])
    assert single


def test_a_grey_image_is_repeated():
    images, single = as_batch(RGB[0, 0])
    assert torch.equal(images, RGB[:1, :1].expand(1, 3, 8, 9))
    assert single


@pytest.mark.parametrize("y", [[0, 1, 2], np.arange(3), torch.arange(3), ("a", "b", "c")], ids=repr)
def test_three_labels_for_three_channels_are_told_how_grey_images_are_given(y):
    grey = HWC[0, :, :, 0][None].repeat(3, 0)
    learner = learners.small("er", num_classes=None)
    learner.learn(grey[:, None], y)
    told = r"^expected one label, since \(3, 8, 9\) is read as .+ one image in colour, got 3; .+ x\[:, None\]$"
    for asked in (learner.learn, learner.evaluate, learner.publish().evaluate):
        with pytest.raises(InputError, match=told):
            asked(grey, y)


@pytest.mark.parametrize("y", ["cat", ["cat"], 3, np.array(3), [1, 2]], ids=repr)
def test_an_image_in_colour_has_a_label_of_any_length(y):
    assert torch.equal(as_batch_for(RGB[0], y), RGB[:1])


def test_an_image_of_pil_is_read_as_a_data_set_reads_its_file(tmp_path):
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024
    images, _ = as_batch(Image.fromarray(deep))
    assert torch.equal(images[0, 0], torch.from_numpy((deep >> 8).astype(np.uint8)))
    turned = Image.Exif()
    turned[0x112] = 6  # a quarter to the right, to be upright
    Image.fromarray(HWC[0]).save(tmp_path / "x.png", exif=turned)
    assert as_batch(Image.open(tmp_path / "x.png"))[0].shape == (1, 3, 9, 8)
    Image.fromarray(HWC[0]).save(tmp_path / "x.bmp")
    (tmp_path / "half.bmp").write_bytes((tmp_path / "x.bmp").read_bytes()[:120])
    with pytest.raises(InputError, match=r"^expected a readable image in an image of PIL, got .*; mend it or leave it"):
        as_batch([Image.open(tmp_path / "half.bmp")])


@pytest.mark.parametrize(
    ("x", "told"),
    [
        ([None, HWC[0]], "an image at position 0, got NoneType; give images alone"),
        (np.zeros((8, 8, 4), np.uint8), "RGBA with the channels last: leave alpha out"),
        ([HWC[0], HWC[1, :4]], r"images of one shape, got \(3, 8, 9\) and, at position 1, \(3, 4, 9\)"),
        ([RGB[0], RGB[:1]], r"an image at position 1, got shape \(1, 3, 8, 9\); give images alone"),
        (RGB[:0], "non-empty batch"),
        (torch.full((1, 3, 8, 8), torch.nan), "finite image values, got NaN"),
        (np.zeros((5, 8, 8), np.uint8), "channel axis"),
        ("cat.png", r"images, got the name of a file; open it, for instance by PIL\.Image\.open"),
        ([Path("cat.png"), Path("dog.png")], "images, got the name of a file"),
        (3, "grey or RGB images"),
        ([], "got an empty batch"),
    ],
)
def test_what_is_no_batch_is_told_in_one_sentence(x, told):
    with pytest.raises(InputError, match=rf"^expected [^\n]*{told}"):
        as_batch(x)
