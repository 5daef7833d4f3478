import base64
import io
import json
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from s6mod.data.images import read_image
from s6mod.errors import S6modError
from s6mod.serve.decode import Sent, from_files, from_json, images_of, labels_of
from s6mod.serve.settings import Limits

SIZE = (8, 8)
PIXELS = np.random.default_rng(0).integers(256, size=(20, 30, 3), dtype=np.uint8)  # H, W, C


def png(pixels=PIXELS):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def of_file(content, limits=None):
    return images_of(from_files([("x", content)], (), None), SIZE, limits or Limits())


def of_json(content):
    return images_of(from_json(json.dumps({"images": content}).encode()), SIZE, Limits())


def test_one_rule_resizes_a_file_an_array_and_what_the_command_reads():
    expected = read_image(io.BytesIO(png()), SIZE, "x")[None]
    for images in (
        of_file(png()),
        of_file(npy(PIXELS)),
        of_file(npy(PIXELS.transpose(2, 0, 1)[None])),
        of_json(PIXELS.tolist()),
        of_json([base64.b64encode(png()).decode()]),
    ):
        np.testing.assert_array_equal(images, expected)


def test_images_of_the_right_size_stay_as_they_are():
    images = np.random.default_rng(1).integers(256, size=(3, 3, 8, 8), dtype=np.uint8)
    np.testing.assert_array_equal(of_file(npy(images)), images)
    np.testing.assert_array_equal(of_file(npy(np.asfortranarray(images))), images)
    np.testing.assert_array_equal(of_file(npy(images / 255)), images)
    np.testing.assert_array_equal(of_json(images.tolist()), images)


def test_a_long_text_among_numbers_takes_no_memory_of_its_own_for_each():
    images = ["x" * 10_000, *[0] * 1_000]  # as an array of texts of one length: 40 MB
    tracemalloc.start()
    with pytest.raises(S6modError, match="expected images as numbers"):
        images_of(Sent([], images, None, "id"), SIZE, Limits())
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_labels_are_names_in_words_and_whole_numbers_in_json():
    assert from_files([], ["3"], None).labels == ["3"]
    assert from_files([], ["[3]"], None).labels == [3]
    assert from_json(b'{"images": [], "labels": ["cat", 3], "id": "x"}').labels == ["cat", 3]


def lie(shape):
    return npy(np.zeros((2, 3, 8, 8), np.uint8)).replace(b"(2, 3, 8, 8)", shape)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"nothing", "expected a readable image in x, got one that does not decode (of no format that is known); send"),
        (png()[:100], "expected a readable image"),
        (npy(np.array([{}]), allow_pickle=True), "expected an npy array of numbers, got another, or one with Python"),
        (lie(b"(9, 3, 8, 8)"), "got a damaged or truncated one"),
        (lie(b"(-2, 3, 8, 8)"), "expected an npy array of numbers"),
        (lie(b"(2, [], 8, 8)"), "expected an npy array of numbers"),
        (npy(np.zeros((1, 3, 8, 8)) - 1), "expected float images in"),
        (npy(np.full((1, 3, 8, 8), 256)), "expected whole numbers in 0..255"),
        (npy(np.zeros((300, 3, 2, 2), np.uint8)), "expected at most 256 images, got 300"),
    ],
)
def test_what_is_no_image_is_one_sentence(content, sentence):
    with pytest.raises(S6modError) as told:
        of_file(content)
    assert sentence in str(told.value)


def test_a_file_of_too_many_pixels_is_refused_before_it_is_decoded():
    with pytest.raises(S6modError, match="expected at most 100 pixels in x, got 30x20; send another"):
        of_file(png(), limits=Limits(pixels=100))


def test_an_array_of_too_many_pixels_is_refused_before_it_is_resized():
    with pytest.raises(S6modError, match="expected at most 100 pixels, got 600; shrink the image"):
        of_file(npy(PIXELS), limits=Limits(pixels=100))


def test_more_files_than_images_are_taken_are_refused_before_they_are_decoded():
    with pytest.raises(S6modError, match="expected at most 1 images, got 2"):
        images_of(from_files([("x", b"none"), ("y", b"none")], (), None), SIZE, Limits(images=1))


@pytest.mark.parametrize("labels", [["a", "b"], [], "a", [1.5], [True], [None], [""], ["\x1b"], ["\ud800"], [2**60]])
def test_labels_that_are_none_are_refused(labels):
    with pytest.raises(S6modError, match=r"^expected "):
        labels_of(labels, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"images": [[1], [1, 2]]}',
        b'{"images": "x"}',
        b'{"images": [[[1, [2]]]]}',
        b'{"images": [true]}',
        b'{"image": []}',
        b"[" * 9000,
        b"{}",
    ],
)
def test_json_that_is_not_as_it_should_be_is_one_sentence(body):
    with pytest.raises(S6modError, match=r"^expected "):
        images_of(from_json(body), SIZE, Limits())


def test_one_file_that_is_in_no_list_is_told():
    body = json.dumps({"images": base64.b64encode(png()).decode()}).encode()
    with pytest.raises(S6modError, match="expected images as a list, got one text; send a list"):
        images_of(from_json(body), SIZE, Limits())
