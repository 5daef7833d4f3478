"""Any module as a network: it makes a feature map or features; the pooling and the linear head are ours.

The module is a person's own and comes with its weights, so it is copied before it is run or learned.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from s6mod.errors import ConfigError, InputError
from s6mod.networks.base import Headed


def taken(module: nn.Module) -> nn.Module:
    """A copy of a person's module on the host, in float32 and without gradients."""
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"expected an nn.Module as network, got {module!r}; "
            "give one that maps images (N, 3, H, W) to a feature map (N, C, h, w) or to features (N, F)"
        )
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ConfigError(
            f"expected a network that has its weights, got a {type(module).__name__} with lazy ones; "
            "run it once on images of yours"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ConfigError("expected a network in Python, got one of TorchScript; give the module that it was made of")
    try:
        own = copy.deepcopy(module).cpu().float()
    except Exception as error:  # whatever the code of others raises
        raise ConfigError(
            f"expected a network that can be copied, got a {type(module).__name__} that cannot ({_said(error)}); "
            "leave out what it holds beside its layers"
        ) from error
    own.zero_grad(set_to_none=True)
    return own


def misfit(module: nn.Module, saved: Mapping[str, Tensor]) -> str | None:
    """What keeps ``module`` from taking over the tensors of a saved ``Adapted``; None: nothing does."""
    there = {f"body.{name}": tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in saved.items() if name.startswith("body.")}
    for name in (*wanted, *there):
        own, other = there.get(name), wanted.get(name)
        if own != other:
            what = repr(name.removeprefix("body."))
            if own is None:
                return f"without {what}"
            return f"with {what}, " + ("which that one lacks" if other is None else f"{own} in place of {other}")
    return None


class Adapted(Headed):
    """A copy of ``module``, an average over the map that it makes, and a linear head. Features are a map of 1x1."""

    def __init__(self, module: nn.Module, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.body = copy.deepcopy(module)
        self.num_features, *size = _shape_of(module, image_shape)
        self.map_channels, self.map_size = self.num_features, (size[0], size[1]) if size else (1, 1)
        self.head = nn.Linear(self.num_features, num_classes)

    def trunk(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) float images -> (B, map_channels, *map_size)."""
        try:
            made: Tensor = self.body(images)
        except ValueError as error:
            if len(images) > 1:
                raise
            raise InputError(
                f"expected more than one image for a step of this network, got one ({_said(error)}); give more at once"
            ) from error
        return made if made.dim() == 4 else made[:, :, None, None]

    def pool(self, feature_map: Tensor) -> Tensor:
        """(B, map_channels, *map_size) -> the mean over the map, in float32."""
        return feature_map.float().mean((2, 3))


@torch.no_grad()
def _shape_of(module: nn.Module, image_shape: tuple[int, int, int]) -> tuple[int, ...]:
    """(C, h, w) or (F,) that it makes of an image, by a pass of a copy; torch's generator stays as it was."""
    looked, zeros, kind = copy.deepcopy(module), torch.zeros(2, *image_shape), type(module).__name__
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        try:
            made, alone = looked.eval()(zeros), looked(zeros[:1])
            looked.train()(zeros)
        except Exception as error:  # whatever the code of others raises
            raise InputError(
                f"expected a network that takes one image or more of shape (N, {', '.join(map(str, image_shape))}), "
                f"got a {kind} that does not ({_said(error)}); change it or the images"
            ) from error
        drew = not torch.equal(before, torch.get_rng_state())
    if not isinstance(made, Tensor) or made.dim() not in (2, 4) or len(made) != 2 or not made.is_floating_point():
        shape = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else f"a {type(made).__name__}"
        raise InputError(
            "expected a network that makes of two images a feature map (2, C, h, w) or features (2, F), "
            f"got {shape} from a {kind}; wrap it in a module that returns one of them"
        )
    if alone.shape != (1, *made.shape[1:]):
        raise InputError(
            f"expected a network that keeps the axis of a single image, got shape {tuple(alone.shape)} from a {kind}; "
            "take out its squeeze()"
        )
    if drew:
        raise InputError(
            f"expected a network without random draws of its own, which no seed would repeat, got a {kind} that draws "
            "from torch's generator; set its dropout to 0"
        )
    return tuple(made.shape[1:])


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
