"""All of a learner that is built once the shape of its images and the number of its outputs are known.

A learner that grows has them built anew with more outputs. ``grown`` is the one place that knows how: whatever has a
row or a column for each class is made at the new size and takes over what it held.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from s6mod.engine.average import Average, average_of
from s6mod.engine.capture import CapturedStep
from s6mod.engine.checkpoint import Tree
from s6mod.engine.settings import Engine
from s6mod.engine.step import Ledger, Step, load_optimizer_state, make_optimizer, optimizer_state
from s6mod.engine.teaching import Teaching
from s6mod.errors import ConfigError
from s6mod.learner.config import LearnerConfig
from s6mod.learner.own import Own
from s6mod.learner.peer import make_peer
from s6mod.memory import ReplayMemory
from s6mod.methods import Method, Peer, methods
from s6mod.random import derive_seed, generator, set_state
from s6mod.teacher import teachers


@dataclass
class Parts:
    """Method, networks, optimiser, memory, draws, and the step that joins them."""

    method: Method
    peers: list[Peer]
    optimizer: torch.optim.Optimizer
    memory: ReplayMemory
    host_generator: torch.Generator
    generators: dict[str, torch.Generator]
    ledger: Ledger
    average: Average[Peer] | None
    teaching: Teaching | None
    step: Step | CapturedStep
    own: Own

    @property
    def capacity(self) -> int:
        """Outputs there are, for classes seen or not."""
        return self.method.num_classes

    @property
    def nbytes(self) -> int:
        """Bytes held between steps."""
        tensors = [t for part in (*self.peers, self.method) for t in (*part.parameters(), *part.buffers())]
        tensors += [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        copies = sum(follower.nbytes for follower in (self.average, self.teaching) if follower is not None)
        return self.memory.nbytes + copies + sum(t.numel() * t.element_size() for t in tensors)

    @property
    def _all_generators(self) -> dict[str, torch.Generator]:
        return {"host": self.host_generator, **self.generators}

    def state_tree(self) -> Tree:
        """Everything that changes."""
        return {
            "method": self.method.state_dict(),
            "peers": {str(n): peer.state_tree() for n, peer in enumerate(self.peers)},
            "optimizer": optimizer_state(self.optimizer, self.peers),
            "memory": self.memory.state_dict(),
            "generators": {name: g.get_state() for name, g in self._all_generators.items()},
            "ledger": self.ledger.state_dict(),
            **({} if self.average is None else {"average": self.average.state_tree()}),
            **({} if self.teaching is None else {"teaching": self.teaching.state_tree()}),
        }

    def load_state_tree(self, state: Tree, seed: int, steps: int, device: torch.device) -> None:
        """Take over a state of such parts; where generators cannot go on, they start from ``seed`` and ``steps``."""
        self.method.load_state_dict(state["method"])
        for number, peer in enumerate(self.peers):
            peer.load_state_tree(state["peers"][str(number)])
        load_optimizer_state(self.optimizer, self.peers, state["optimizer"], self.own.optimizer is not None)
        self.memory.load_state_dict(state["memory"])
        if not ((self.memory.labels >= -1) & (self.memory.labels < self.capacity)).all():
            raise ValueError("labels of the memory beyond num_classes")
        for name, g in self._all_generators.items():
            set_state(g, state["generators"][name], derive_seed(seed, f"{name} from step {steps}"))
        self.ledger.load_state_dict(state["ledger"], device)
        if self.average is not None:
            self.average.load_state_tree(state["average"])
        if self.teaching is not None:
            self.teaching.load_state_tree(state["teaching"])


def make_parts(
    config: LearnerConfig,
    engine: Engine,
    image_shape: tuple[int, int, int],
    capacity: int,
    own: Own,
    before: Parts | None = None,
) -> Parts:
    """Parts for images of this shape; each draws its initial values from a seed of its own.

    ``before``: smaller ones, whose memory, draws and loss sums go on.
    """
    device = engine.device
    method: Method = methods[config.method.name](config.method, image_shape, capacity).to(device)
    peers = [make_peer(config, method, engine, number, own.network) for number in range(method.num_peers)]
    optimizer = make_optimizer(config.method.optimizer, peers, device, own.optimizer)
    if before is None:
        memory = ReplayMemory(config.memory_size, image_shape, method.reservoir, device, method.values())
        host_generator = generator(config.seed, "host")
        generators = {name: generator(config.seed, name, device) for name in ("method", "branch")}
        ledger = Ledger()
    else:
        memory = before.memory.widened(method.values())
        host_generator, generators, ledger = before.host_generator, before.generators, before.ledger
    average = None if config.average is None else average_of(peers, config.average)
    teaching = None if config.teacher is None else Teaching(teachers[config.teacher.name](config.teacher), peers)
    step = Step(method, peers, optimizer, memory, generators, engine, ledger, average, teaching)
    return Parts(
        method,
        peers,
        optimizer,
        memory,
        host_generator,
        generators,
        ledger,
        average,
        teaching,
        CapturedStep(step) if engine.capture and own.optimizer is None else step,  # another's may not be capturable
        own,
    )


def grown(parts: Parts, config: LearnerConfig, engine: Engine, capacity: int) -> Parts:
    """The same with more outputs; ``parts`` stay whole. Captured steps are captured anew.

    What is new begins as in a learner that is made with so many outputs; an optimiser knows nothing of it yet.
    """
    new = make_parts(config, engine, parts.method.image_shape, capacity, parts.own, parts)
    new.method.load_state_dict(_laid_over(new.method.state_dict(), parts.method.state_dict()))
    for peer, old in zip(new.peers, parts.peers, strict=True):
        if old.teacher is not None:
            peer.remember()
        peer.load_state_tree(_laid_over(peer.state_tree(), old.state_tree()))
    moments = optimizer_state(parts.optimizer, parts.peers)
    was, learned = ([p for peer in peers for p in peer.learned_parameters()] for peers in (parts.peers, new.peers))
    nothing = {
        number: {name: _unlearned(value, was[int(number)], learned[int(number)]) for name, value in state.items()}
        for number, state in moments.items()
    }
    load_optimizer_state(new.optimizer, new.peers, _laid_over(nothing, moments), parts.own.optimizer is not None)
    for follower, before in ((new.average, parts.average), (new.teaching, parts.teaching)):
        if follower is not None and before is not None:
            follower.load_state_tree(_laid_over(follower.state_tree(), before.state_tree()))
    return new


def _unlearned(value: Any, was: nn.Parameter, parameter: nn.Parameter) -> Any:
    """What an optimiser keeps of a parameter that has grown, before it knows anything of it."""
    if not isinstance(value, Tensor) or not value.dim() or was.shape == parameter.shape:
        return value
    if value.shape != was.shape:
        raise ConfigError(
            f"expected an optimiser that keeps tensors of the shape of a parameter, {tuple(was.shape)}, to grow, got "
            f"one of shape {tuple(value.shape)}; give num_classes to the learner, or take another"
        )
    return torch.zeros_like(parameter)


def _laid_over(new: Tree, old: Tree) -> Tree:
    """The tensors of ``new``, with the values of ``old`` as far as those reach."""
    tree: Tree = {}
    for name, value in new.items():
        held: Any = old[name]
        if isinstance(value, dict):
            tree[name] = _laid_over(value, held)
        elif isinstance(value, Tensor) and value.dim():
            tree[name] = copy.deepcopy(value.detach())
            tree[name][tuple(slice(size) for size in held.shape)] = held.detach()
        else:
            tree[name] = held
    return tree
