"""Small images in real formats, and folders of them."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def draw():
    """Write an image of random pixels and give its pixels (H, W, 3) or (H, W)."""
    rng = np.random.default_rng(0)

    def write(path, size=(16, 16), mode="RGB"):
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        return pixels

    return write


@pytest.fixture
def photos(tmp_path, draw):
    """A folder of two class folders with five images each."""
    folder = tmp_path / "photos"
    for name in ("cat", "dog"):
        for number in range(5):
            draw(folder / name / f"{number}.png")
    return folder
