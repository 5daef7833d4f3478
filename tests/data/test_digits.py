from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import datasets

from s6mod.data.digits import load_digits
from s6mod.errors import InputError


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_the_page_on_data_says_how_many_there_are(digits):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "data.md").read_text()
    assert f"| `digits` | 10 | {len(digits.train_labels):,} + {len(digits.test_labels)} |" in page


def test_digits_are_rgb_images_of_ten_classes(digits):
    assert digits.name == "digits"
    assert digits.image_shape == (3, 32, 32)
    assert digits.class_names == tuple("0123456789")
    assert torch.equal(digits.train_images[:, 0], digits.train_images[:, 2])
    assert len(digits.train_labels) + len(digits.test_labels) == 1797


def test_every_fifth_sample_of_each_class_is_a_test_sample(digits):
    labels = datasets.load_digits().target
    for digit in range(10):
        count = int((labels == digit).sum())
        assert int((digits.test_labels == digit).sum()) == count // 5
        assert int((digits.train_labels == digit).sum()) == count - count // 5


def test_the_split_is_by_order_of_the_file():
    raw = datasets.load_digits()
    plain = load_digits(size=8)  # no scaling: pixels can be compared with the source
    want = torch.from_numpy(np.round(raw.images * 255 / 16)).to(torch.uint8)
    of_three = want[torch.from_numpy(raw.target == 3)]
    assert torch.equal(plain.test_images[plain.test_labels == 3][:, 0], of_three[4::5])
    kept = [k for k in range(len(of_three)) if k % 5 != 4]
    assert torch.equal(plain.train_images[plain.train_labels == 3][:, 0], of_three[kept])


def test_scaling_is_bilinear_between_pixel_centres(digits):
    raw = datasets.load_digits().images[0]  # the file's first sample is a training sample
    at = (np.arange(32) + 0.5) / 4 - 0.5  # centres of the 32 pixels, in units of the 8
    weights = np.stack([np.interp(at, np.arange(8), row) for row in np.eye(8)], axis=1)  # (32, 8), edges held
    want = np.round(weights @ raw @ weights.T * 255 / 16)
    assert want.max() > 200
    assert np.array_equal(digits.train_images[0, 1].numpy(), want)


def test_two_loads_are_the_same_bits(digits):
    assert load_digits().fingerprint == digits.fingerprint


def test_odd_sizes_work_and_no_size_is_refused():
    assert load_digits(size=13).image_shape == (3, 13, 13)
    with pytest.raises(InputError, match="got 0"):
        load_digits(size=0)
