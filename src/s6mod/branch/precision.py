"""Which parts of a branch keep full precision when the rest runs under autocast.

The scan, the gate, the routing and the losses sum many small numbers or compare nearly equal ones, so they are
decorated. Projections and convolutions are not: they may run in half precision.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: autocast is off inside and half-precision arguments arrive as float32; float64 stays."""

    @functools.wraps(function)
    def wide(*args: P.args, **kwargs: P.kwargs) -> T:
        given = [*args, *kwargs.values()]
        device = next((value.device.type for value in given if isinstance(value, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return function(*map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()})

    return cast(Callable[P, T], wide)


def _widen(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value
