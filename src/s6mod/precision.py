"""Branches keep full precision when the network they sit on runs under autocast.

They sum many small numbers and compare nearly equal ones. Their matrix products are small, so that half precision would
save little, and cost the launch of a conversion for each factor.
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
