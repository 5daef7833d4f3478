"""Steps that may not look at values, on the CPU, where looking would work.

On a GPU the host would have to wait for the values, and a step that does so cannot be captured. What is no operation on
a CPU is not seen: ``tolist()``, ``numpy()``, ``tensor_split`` by a tensor.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from s6mod.engine.step import Inputs, Step

# Operations whose answer, or its shape, is not known before the values are; and what of it stands in one's code.
LOOKS = {
    "aten::_local_scalar_dense": "item(), float(), 'if' of a tensor, or F.one_hot()",
    "aten::equal": "torch.equal()",
    "aten::allclose": "torch.allclose()",
    "aten::nonzero": "nonzero()",
    "aten::masked_select": "masked_select()",
    "aten::_unique2": "unique()",
    "aten::unique_dim": "unique()",
    "aten::unique_consecutive": "unique_consecutive()",
    "aten::bincount": "bincount()",
}


MASKS = (torch.bool, torch.uint8)


class Looked(Exception):  # noqa: N818 - it says what was done
    """An operation looked at a value."""


def blind(step: Step) -> None:
    """Have the step raise ``Looked`` instead of looking at a value."""
    compute = step.compute

    def blindly(inputs: Inputs) -> tuple[str, ...]:
        with _Blind():  # type: ignore[no-untyped-call]
            return compute(inputs)

    step.compute = blindly  # type: ignore[method-assign]


class _Blind(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        if name in LOOKS:
            raise Looked(f"{name}, as of {LOOKS[name]}")
        if name == "aten::index" and any(index is not None and index.dtype in MASKS for index in args[1]):
            raise Looked(f"{name} by a mask")
        if name == "aten::repeat_interleave" and not (kwargs or {}).get("output_size"):
            raise Looked(f"{name} by a tensor, without output_size")
        return func(*args, **(kwargs or {}))
