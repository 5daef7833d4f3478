"""Where Triton kernels can run, and how they are found. What they compute stands beside their plain twins.

Every choice between a kernel and its plain twin is made here, in the forward pass.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from torch import Tensor

_plain_alone: ContextVar[bool] = ContextVar("plain_alone", default=False)


@contextmanager
def plain_twins() -> Iterator[None]:
    """In this context no kernel is used: on a GPU, too, the plain functions run.

    It holds for the calling thread alone. Backward passes run in threads of autograd's, which do not see it: so no
    backward pass may ask ``kernels_for``.
    """
    before = _plain_alone.set(True)
    try:
        yield
    finally:
        _plain_alone.reset(before)


def kernels_for(x: Tensor, module: str) -> Any:
    """The module of kernels to use for ``x``, or None where the plain version must do.

    Kernels run on a CUDA device. Triton's interpreter, chosen by TRITON_INTERPRET=1 before the first use, runs them on
    a CPU too; slowly, for tests. Under ``plain_twins`` there are none.
    """
    if _plain_alone.get():
        return None
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and x.device.type == "cpu"
    return _kernels(module) if x.is_cuda or interpreted else None


@cache
def _kernels(module: str) -> Any:
    """Imported on first use, since that takes a while; None where there is no Triton."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
