"""The contract of an augmentation, and what stored pixels are as floats.

An augmentation is two verbs: ``draw`` decides for every image, ``apply`` computes. Both stay on the device and read
nothing back. Which augmentation a method uses, and when, is the method's business.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

import torch
from torch import Tensor

from s6mod.errors import InputError

P = TypeVar("P")
_unaugmented: ContextVar[bool] = ContextVar("unaugmented", default=False)


@contextmanager
def unaugmented() -> Iterator[None]:
    """In this context, of the calling thread, an augmentation draws nothing and gives the images as they are."""
    before = _unaugmented.set(True)
    try:
        yield
    finally:
        _unaugmented.reset(before)


class Augment(ABC, Generic[P]):
    """A random transformation of a batch of images whose parameters are of type ``P``."""

    @abstractmethod
    def draw(self, batch: int, size: tuple[int, int], generator: torch.Generator, device: torch.device) -> P:
        """Parameters for ``batch`` images of ``size`` (H, W); ``generator`` lives on ``device``."""

    @abstractmethod
    def apply(self, x: Tensor, params: P) -> Tensor:
        """``x`` (B, 3, H, W), uint8 or float32 in [0, 1], as ``params`` say; same shape, float32, new memory."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A fresh random view of ``x`` (B, 3, H, W)."""
        check_images(x)
        if _unaugmented.get():
            return to_float(x) if x.dtype == torch.uint8 else x.clone()
        return self.apply(x, self.draw(x.shape[0], (x.shape[2], x.shape[3]), generator, x.device))


def to_float(images: Tensor) -> Tensor:
    """uint8 pixels -> float32 in [0, 1], any shape; the memory format is kept."""
    if images.dtype != torch.uint8:
        raise InputError(f"expected uint8 images, got {images.dtype}; pass the pixels as they are stored")
    return images.to(torch.float32) / 255


def uniform_numbers(generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform float32 numbers in [0, 1) of a generator, on its device; torch's default type does not matter."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)


def check_images(x: Tensor) -> None:
    """Refuse what is not a batch of colour images; looks at shape and type only, never at values."""
    if x.dim() != 4 or x.shape[1] != 3:
        raise InputError(
            f"expected images of shape (B, 3, H, W), got {tuple(x.shape)}; repeat a grey channel three times"
        )
    if x.dtype not in (torch.uint8, torch.float32):
        raise InputError(f"expected images in uint8, or in float32 from 0 to 1, got {x.dtype}; convert them")
