from contextlib import suppress

import numpy as np
import pytest
import torch

from s6mod.data.arrays import as_labels, as_uint8_images
from s6mod.errors import InputError


def test_uint8_rgb_images_pass_without_a_copy():
    x = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    assert as_uint8_images(x).data_ptr() == x.data_ptr()
    array = x.numpy()
    assert torch.equal(as_uint8_images(array), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_255th_survives_the_way_through_floats(dtype):
    levels = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 3, 16, 16)
    assert torch.equal(as_uint8_images(levels.to(dtype) / 255), levels)


def test_floats_are_rounded_to_the_nearest_level_not_cut():
    assert as_uint8_images(torch.full((1, 3, 1, 1), 0.999)).unique().tolist() == [255]
    assert as_uint8_images(torch.full((1, 3, 1, 1), 1.4 / 255, dtype=torch.bfloat16)).unique().tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floats_may_overstep_by_what_rounding_leaves(dtype):
    white = torch.full((1, 3, 1, 1), 1 + torch.finfo(dtype).eps, dtype=dtype)  # as resized, or by MinMaxScaler
    assert white.max() > 1
    assert as_uint8_images(white).unique().tolist() == [255]
    assert as_uint8_images(1 - white).unique().tolist() == [0]


def test_grey_is_repeated_to_three_channels():
    x = np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2)
    images = as_uint8_images(x)
    assert images.shape == (2, 3, 2, 2)
    assert all(torch.equal(images[:, c], torch.from_numpy(x[:, 0])) for c in range(3))


def test_awkward_numpy_memory_is_taken():
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4), dtype=np.uint8)
    flipped = x[..., ::-1]
    assert np.array_equal(as_uint8_images(flipped).numpy(), flipped)
    big_endian = (x / 255).astype(">f4")
    assert np.array_equal(as_uint8_images(big_endian).numpy(), x)
    x.setflags(write=False)
    assert np.array_equal(as_uint8_images(x).numpy(), x)  # torch would warn about read-only memory


def test_gradients_stop_at_the_door():
    assert not as_uint8_images(torch.rand(1, 3, 2, 2, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (torch.zeros(2, 8, 8, 3), r"looks like \(N, H, W, C\)"),
        (torch.zeros(3, 8, 8), r"x\[None\]"),
        (torch.zeros(5, 8, 8), r"x\[:, None\]"),
        (torch.zeros(2, 4, 8, 8), "grey or RGB"),
        (torch.zeros(7), "grey or RGB"),
        (torch.zeros(0, 3, 8, 8), r"^expected at least one image, got an empty batch of shape \(0, 3, 8, 8\); "),
        (np.zeros(0), "^expected at least one image"),
        (np.zeros((16, 16, 3)), r"looks like one image \(H, W, C\): x\.transpose\(2, 0, 1\)\[None\]"),
        (np.zeros((16, 16)), r"one grey image \(H, W\): x\[None, None\]"),
        (torch.zeros(2, 3, 0, 8), "grey or RGB"),
        (torch.full((1, 3, 2, 2), 255.0), r"got values in \[255, 255\]; divide"),
        (torch.full((1, 3, 2, 2), 1.0012), r"got values in \[1\.001\d+, 1\.001\d+\]; divide"),
        (torch.full((1, 3, 2, 2), -0.0012), r"got values in \[-0\.001\d+, -0\.001\d+\]; divide"),
        (torch.full((1, 3, 2, 2), -0.1), r"in \[0, 1\]"),
        (torch.full((1, 3, 2, 2), torch.inf), r"in \[0, 1\]"),
        (torch.tensor([0.5, torch.nan, 0.5]).reshape(1, 3, 1, 1), "got NaN"),
        (torch.zeros(1, 3, 2, 2, dtype=torch.int64), "got int64"),
        (np.zeros((1, 3, 2, 2), dtype=bool), r"got bool; convert them with x\.float\(\)"),  # as uint8 they were black
        (np.array([[[["a"]]]]), "an array of <U1"),
        (np.array([[[[object()]]]]), "an array of object"),
        ("cat.png", "got str"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_image_batch_is_refused_with_a_hint(x, hint):
    with pytest.raises(InputError, match=hint) as error:
        as_uint8_images(x)
    assert str(error.value).startswith("expected ")


@pytest.mark.parametrize("y", [[2, 0, 1], np.array([2, 0, 1], dtype=np.uint8), torch.tensor([2, 0, 1]).int()])
def test_labels_become_int64_on_the_host(y):
    labels = as_labels(y, num_classes=3, length=3)
    assert labels.dtype == torch.int64
    assert labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("y", "hint"),
    [
        ([0.0, 1.0], "integer labels, got float"),
        ([True, False], "integer labels, got bool"),
        (torch.tensor([1j, 0]), "integer labels, got complex"),
        ([0, 3], "got 3 at position 1"),
        ([0, -1], "got -1 at position 1"),
        (np.array([0, 2**64 - 1], dtype=np.uint64), "at position 1"),
        ([2**70, 0], "list of numbers"),
        ([[0, 1]], r"shape \(N,\), got \(1, 2\)"),
        (1, r"shape \(N,\), got \(\)"),
        ([0, 1, 2], "expected 2 labels"),
        (["cat", "dog"], "list of numbers, got list; number the classes"),
    ],
)
def test_what_is_no_label_is_refused(y, hint):
    with pytest.raises(InputError, match=hint):
        as_labels(y, num_classes=3, length=2)


def test_an_empty_batch_of_labels_is_refused():
    with pytest.raises(InputError, match="at least one label"):
        as_labels([], num_classes=3)


def test_without_a_number_of_classes_only_negative_labels_are_refused():
    assert as_labels([0, 10**6]).tolist() == [0, 10**6]
    with pytest.raises(InputError, match="from 0 on, got -1"):
        as_labels([-1])


@pytest.mark.parametrize(
    ("change", "got"),
    [(torch.Tensor.to_sparse, "layout sparse_coo"), (lambda x: x.to("meta"), "meta tensor")],
    ids=["sparse", "meta"],
)
def test_tensors_without_values_in_place_are_refused(change, got):
    with pytest.raises(InputError, match=f"expected images as a dense tensor with values, got a .*{got}; convert it"):
        as_uint8_images(change(torch.rand(2, 3, 4, 4)))
    with pytest.raises(InputError, match=f"expected labels as a dense tensor with values, got a .*{got}; convert it"):
        as_labels(change(torch.tensor([1, 2])))


DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_images_and_labels_of_any_dtype_are_taken_or_refused_in_one_sentence(dtype):
    for take, size in ((as_uint8_images, (2, 3, 8, 8)), (as_labels, (4,))):
        try:
            given = torch.zeros(size).to(dtype)
        except (RuntimeError, NotImplementedError):  # nobody can make one so
            given = torch.empty(size, dtype=dtype)
        with suppress(InputError):
            assert len(take(given)) == size[0]


def test_floats_of_eight_bits_are_refused_with_what_to_do():
    with pytest.raises(InputError, match=r"got float8_e4m3fn; convert them with x\.float\(\)"):
        as_uint8_images(torch.zeros(1, 3, 8, 8).to(torch.float8_e4m3fn))


def test_the_hint_for_a_single_image_makes_a_batch_of_it():
    image = np.zeros((16, 16, 3), np.uint8)
    assert as_uint8_images(image.transpose(2, 0, 1)[None]).shape == (1, 3, 16, 16)
    assert as_uint8_images(torch.from_numpy(image).permute(2, 0, 1)[None]).shape == (1, 3, 16, 16)
    assert as_uint8_images(image[None, None, :, :, 0]).shape == (1, 3, 16, 16)
