"""kornia 0.6.8 as an oracle: the same operations, told which parameters to use; and a look at which kernels run."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from s6mod.augment import colour, crop, fused


def _boxes(src: Tensor) -> Tensor:
    """kornia's corner points (B, 4, 2), x before y and inclusive -> top, left, height, width."""
    first, last = src[:, 0], src[:, 2]
    return torch.cat([first.flip(1), (last - first + 1).flip(1)], dim=1).long()


@pytest.fixture(scope="session")
def oracle() -> SimpleNamespace:
    import kornia.augmentation as K

    def draw_boxes(batch, size, scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)):
        """Boxes from kornia's own generator, which draws from torch's global one."""
        crop = K.RandomResizedCrop(size, scale=scale, ratio=ratio)
        return _boxes(crop.generate_parameters(torch.Size((batch, 3, *size)))["src"])

    def crop(x, box):
        """Boxes must be at least 2 x 2: kornia solves for a homography on the way, which a line does not have."""
        module = K.RandomResizedCrop(tuple(x.shape[2:]))
        top, left, height, width = box.float().unbind(1)
        bottom, right = top + height - 1, left + width - 1
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        src = torch.stack([torch.stack(corner, dim=1) for corner in corners], dim=1)
        return module(x, params=module.forward_parameters(x.shape) | {"src": src})

    def flip(x, mask):
        module = K.RandomHorizontalFlip()
        return module(x, params=module.forward_parameters(x.shape) | {"batch_prob": mask})

    def jitter(x, factors, order, mask=None):
        """kornia wants factors for the images under the mask alone."""
        mask = torch.ones(len(x), dtype=torch.bool) if mask is None else mask
        names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
        params = dict(zip(names, factors[mask].unbind(1), strict=True)) | {"order": order, "batch_prob": mask}
        return K.ColorJitter(0.4, 0.4, 0.4, 0.1, silence_instantiation_warning=True)(x, params=params)

    def grey(x, mask):
        return K.RandomGrayscale()(x, params={"batch_prob": mask})

    def view(x):
        """A random view with parameters of kornia's own."""
        steps = (
            K.RandomResizedCrop(tuple(x.shape[2:]), scale=(0.2, 1.0)),
            K.RandomHorizontalFlip(),
            K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8, silence_instantiation_warning=True),
            K.RandomGrayscale(p=0.2),
        )
        return K.AugmentationSequential(*steps, data_keys=["input"])(x)

    return SimpleNamespace(draw_boxes=draw_boxes, crop=crop, flip=flip, jitter=jitter, grey=grey, view=view)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def constants(monkeypatch):
    """Sets numbers of the crop and of the jitter that no configuration has, to reach edges."""

    def put(**numbers):
        for name, value in numbers.items():
            monkeypatch.setattr(crop if hasattr(crop, name) else colour, name, value)

    return put


@pytest.fixture
def launches(monkeypatch) -> list[str]:
    """Names of the fused functions in the order in which they are called."""
    names = []
    for name in ("fill_params", "view", "fill_transform_params", "transform_view"):
        original = getattr(fused, name)
        monkeypatch.setattr(
            fused, name, lambda *args, name=name, original=original: (names.append(name), original(*args))[1]
        )
    return names
