"""Random streams by name: one seed names a run, and each part of it draws from a stream of its own.

Adding a part, or drawing more in one of them, then changes no other part's draws.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, name: str) -> int:
    """A 63-bit seed for the stream ``name`` of the run ``seed``; the same on every machine."""
    word = hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8]
    return int.from_bytes(word, "big") >> 1


def generator(seed: int, name: str, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator on ``device`` that starts the stream ``name`` of the run ``seed``."""
    return torch.Generator(device).manual_seed(derive_seed(seed, name))


@contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """torch's global CPU generator set to the stream ``name`` for a while; what held before holds again after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, name))
        yield


def set_state(generator: torch.Generator, state: torch.Tensor, otherwise: int) -> None:
    """Go on from a saved state; from seed ``otherwise`` if it was saved on a CPU and is loaded on a GPU or back.

    The generators of the two share no state.
    """
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
    else:
        generator.manual_seed(otherwise)
