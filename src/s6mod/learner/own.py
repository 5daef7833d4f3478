"""What a person brings in place of what the method makes: a network, and a function that makes the optimiser."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from s6mod.errors import ConfigError
from s6mod.networks.adapted import taken

Factory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Own:
    """None: the method's. The network is a copy, as it was when it came."""

    network: nn.Module | None = None
    optimizer: Factory | None = None

    @classmethod
    def taking(cls, network: nn.Module | None, optimizer: Factory | None) -> "Own":
        """What can serve; the network is copied."""
        if optimizer is not None and not callable(optimizer):
            made = isinstance(optimizer, torch.optim.Optimizer)
            got = f"an {type(optimizer).__name__} that is made" if made else repr(optimizer)
            raise ConfigError(
                f"expected a function of parameters as optimizer, got {got}; give one such as "
                "lambda parameters: torch.optim.SGD(parameters, lr=0.05), or a name within method={'optimizer': ...}"
            )
        return cls(None if network is None else taken(network), optimizer)

    @property
    def names(self) -> dict[str, str | None]:
        """What a configuration says of them."""
        factory = self.optimizer
        return {
            "network": None if self.network is None else type(self.network).__name__,
            "optimizer": None if factory is None else getattr(factory, "__name__", type(factory).__name__),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the network that is kept."""
        tensors = [] if self.network is None else [*self.network.parameters(), *self.network.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
