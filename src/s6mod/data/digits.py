"""The handwritten digits that ship with scikit-learn: the data set that is always at hand, without a download.

1797 grey images of 8x8 pixels with values 0..16, scaled up bilinearly and repeated to RGB.
"""

import torch
from torch.nn import functional as F

from s6mod.data.dataset import Dataset
from s6mod.errors import InputError

TEST_EVERY = 5  # of each class, in the order of the file, every fifth sample is a test sample


def load_digits(size: int = 32) -> Dataset:
    """The digits as RGB images of ``size`` x ``size`` pixels.

    The split is fixed: samples 5, 10, 15, ... of each class (counted from 1, in the file's order) are the test set.
    """
    if size < 1:
        raise InputError(f"expected a positive image size, got {size}; 32 is what the backbones are made for")
    from sklearn import datasets  # takes a second to import, and only this data set needs it

    pixels, digits = datasets.load_digits(return_X_y=True)
    grey = torch.from_numpy(pixels).reshape(-1, 1, 8, 8) / 16
    images = F.interpolate(grey, size=(size, size), mode="bilinear", align_corners=False)
    images = images.clamp(max=1)  # weights of an odd size may sum to a hair more than one
    labels = torch.from_numpy(digits).long()

    rank = torch.empty_like(labels)  # of a sample among those of its class, from 1
    for digit in range(10):
        own = labels == digit
        rank[own] = torch.arange(1, int(own.sum()) + 1)
    test = rank % TEST_EVERY == 0
    return Dataset.from_arrays(images[~test], labels[~test], images[test], labels[test], name="digits")
