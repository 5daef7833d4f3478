"""Data sets by name, and the streams they are seen in.

A new data set is one new file here with a function that returns a :class:`Dataset`, and one line in ``_LOADERS``.
"""

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import Field, field_validator

from s6mod.config import Config, nearest
from s6mod.data.cifar import CIFAR10, CIFAR100, load_cifar
from s6mod.data.dataset import Dataset
from s6mod.data.digits import load_digits
from s6mod.data.streams import StreamBatch, StreamConfig, StreamPlan, make_plan
from s6mod.errors import ConfigError

__all__ = [
    "DataConfig",
    "Dataset",
    "StreamBatch",
    "StreamConfig",
    "StreamPlan",
    "default_root",
    "known",
    "load",
    "make_plan",
]

_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "cifar10": lambda root: load_cifar(CIFAR10, root),
    "cifar100": lambda root: load_cifar(CIFAR100, root),
    "digits": lambda root: load_digits(),  # ships with scikit-learn: nothing to look for under the root
}

known: tuple[str, ...] = tuple(sorted(_LOADERS))


class DataConfig(Config):
    """Which data set, and where it lies."""

    name: str = Field("digits", description="name of the data set")
    root: str | None = Field(
        None, description="folder that holds the data; null: S6MOD_DATA if set, else ~/.cache/s6mod/data"
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return _checked(name)


def load(name: str, root: str | Path | None = None) -> Dataset:
    """The data set ``name``, its images on the host; files are looked for under ``root`` (None: ``default_root()``)."""
    return _LOADERS[_checked(name)](default_root() if root is None else Path(root).expanduser())


def default_root() -> Path:
    """``$S6MOD_DATA`` if set, else ``~/.cache/s6mod/data``."""
    return Path(os.environ.get("S6MOD_DATA") or "~/.cache/s6mod/data").expanduser()


def _checked(name: str) -> str:
    if name not in _LOADERS:
        raise ConfigError(f"expected a known data set, got {name!r}; {nearest(name, known)}")
    return name
