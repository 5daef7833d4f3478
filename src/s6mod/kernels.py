"""Where Triton kernels can run, and how they are found. What they compute stands beside their plain twins."""

import importlib
import os
from functools import cache
from typing import Any

from torch import Tensor


def kernels_for(x: Tensor, module: str) -> Any:
    """The module of kernels to use for ``x``, or None where the plain version must do.

    Kernels run on a CUDA device. Triton's interpreter, chosen by TRITON_INTERPRET=1 before the first use, runs them on
    a CPU too; slowly, for tests.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and x.device.type == "cpu"
    return _kernels(module) if x.is_cuda or interpreted else None


@cache
def _kernels(module: str) -> Any:
    """Imported on first use, since that takes a while; None where there is no Triton."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
