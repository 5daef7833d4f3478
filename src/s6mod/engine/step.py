"""The device part of one training step: draw, losses, branch, one backward, one optimiser step, memory write.

Nothing here reads a value back to the host.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from s6mod.engine.average import Average
from s6mod.engine.settings import Engine
from s6mod.engine.teaching import Teaching
from s6mod.errors import ConfigError
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Method, OptimizerConfig, Peer, Plan


class Ledger:
    """Sums of the loss terms since they were last read, kept on the device."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: Counter[str] = Counter()

    def add(self, terms: dict[str, Tensor]) -> None:
        """Add one step's terms."""
        for name, term in terms.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(term, dtype=torch.float32)
        # One kernel for all of them.
        torch._foreach_add_([self.sums[name] for name in terms], [term.detach() for term in terms.values()])

    def read(self) -> dict[str, float]:
        """Mean of each term over its steps since the last reading (this waits for the device), and start anew."""
        if not self.counts:
            return {}
        sums = dict(zip(self.sums, torch.stack(list(self.sums.values())).tolist(), strict=True))
        means = {name: sums[name] / count for name, count in self.counts.items()}
        for total in self.sums.values():
            total.zero_()
        self.counts.clear()
        return means

    def count(self, names: Iterable[str]) -> None:
        """Note on the host which terms a step had."""
        self.counts.update(tuple(names))

    def state_dict(self) -> dict[str, Any]:
        """The sums not yet read."""
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from sums saved before."""
        counted = all(isinstance(count, int) and count > 0 for count in state["counts"].values())
        known = state["counts"].keys() <= state["sums"].keys()
        if not counted or not known or any(value.dim() for value in state["sums"].values()):
            raise ValueError("sums of loss terms that are no numbers, or too few")
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.counts = Counter(state["counts"])


def make_optimizer(
    config: OptimizerConfig,
    peers: Iterable[Peer],
    device: torch.device,
    factory: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
) -> torch.optim.Optimizer:
    """One optimiser over everything that learns; since it treats each parameter alone it equals one per peer.

    ``factory``: what a person brought to make it.

    A fused step takes 36 parameters at a time, each time as long as the largest of them: so large ones come first. SGD
    is not fused: its fused step wants all gradients there from the first step on, and a branch's may come later.
    """
    parameters = sorted(_parameters(peers), key=Tensor.numel, reverse=True)
    if factory is not None:
        return _brought(factory, parameters)
    if config.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, foreach=True
        )
    kinds: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    return kinds[config.name](
        parameters,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=device.type == "cuda",
    )


def _brought(
    factory: Callable[[list[nn.Parameter]], torch.optim.Optimizer], parameters: list[nn.Parameter]
) -> torch.optim.Optimizer:
    """What it makes, if a step can use it."""
    made = factory(list(parameters))
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(
            f"expected a torch.optim.Optimizer from the function given as optimizer, got {made!r}; return one"
        )
    given = {id(parameter) for group in made.param_groups for parameter in group["params"]}
    if given != {id(parameter) for parameter in parameters}:
        raise ConfigError(
            f"expected an optimiser of the {len(parameters)} parameters that its function is given, "
            f"got one of {len(given)}, or of others; hand all of them on, frozen ones too"
        )
    wanted = [each for each in signature(made.step).parameters.values() if each.default is each.empty]
    if wanted:
        raise ConfigError(
            f"expected an optimiser whose step() needs nothing, got a {type(made).__name__}, which wants "
            f"{wanted[0].name!r}; take one that computes the loss once, such as SGD"
        )
    return made


def optimizer_state(optimizer: torch.optim.Optimizer, peers: Iterable[Peer]) -> dict[str, Any]:
    """What it keeps of each parameter, by the parameter's number; nothing of those it has not met."""
    found = {str(n): optimizer.state[p] for n, p in enumerate(_parameters(peers)) if p in optimizer.state}
    for name, value in ((name, value) for kept in found.values() for name, value in kept.items()):
        if not (value is None or isinstance(value, Tensor | int | float)):
            raise ConfigError(
                f"expected an optimiser that keeps tensors and numbers, got a {type(optimizer).__name__} with "
                f"{name!r} of type {type(value).__name__}, which cannot be saved; take another"
            )
    return found


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, peers: Iterable[Peer], state: dict[str, Any], brought: bool = False
) -> None:
    """Go on from what ``optimizer_state`` gave; what is ``brought`` may keep whatever it likes."""
    sgd = isinstance(optimizer, torch.optim.SGD)
    for number, parameter in enumerate(_parameters(peers)):
        saved = state.get(str(number))
        if not saved:
            continue
        if brought:
            optimizer.state[parameter] = {name: _placed(value, parameter) for name, value in saved.items()}
            continue
        sizes = {name: value.shape for name, value in saved.items()}
        moments = dict.fromkeys(("momentum_buffer",) if sgd else ("exp_avg", "exp_avg_sq"), parameter.shape)
        if sizes != moments | ({} if sgd else {"step": ()}):
            raise ValueError(f"moments of parameter {number}: {sizes}")
        optimizer.state[parameter] = {name: _placed(value, parameter) for name, value in saved.items()}


def _placed(value: Any, parameter: nn.Parameter) -> Any:
    """Moments take the parameter's memory layout; a step counter stays a scalar."""
    if not isinstance(value, Tensor):
        return value
    alike = value.dim() and value.shape == parameter.shape
    return torch.empty_like(parameter).copy_(value) if alike else value.to(parameter.device)


def _parameters(peers: Iterable[Peer]) -> list[nn.Parameter]:
    return [p for peer in peers for p in peer.learned_parameters()]


@dataclass(frozen=True)
class Inputs:
    """What the host hands to a step: the stream batch, the method's plan, and where the batch goes in memory."""

    stream: Batch
    plan: Plan
    slots: Tensor  # (B,)

    def to(self, device: torch.device) -> "Inputs":
        """The same on the device."""
        stream = Batch(_moved(self.stream.images, device), _moved(self.stream.labels, device))
        rows = {name: _moved(value, device) for name, value in self.plan.rows.items()}
        return Inputs(stream, Plan(rows, self.plan.path), _moved(self.slots, device))


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, non_blocking=True)


@dataclass
class Step:
    """One training step, from device inputs to updated parameters, buffers and memory."""

    method: Method
    peers: list[Peer]
    optimizer: torch.optim.Optimizer
    memory: ReplayMemory
    generators: dict[str, torch.Generator]
    engine: Engine
    ledger: Ledger
    average: Average[Peer] | None = None
    teaching: Teaching | None = None

    def __call__(self, inputs: Inputs) -> tuple[str, ...]:
        """Take the step with inputs that may still be on the host; the names of its loss terms."""
        return self.compute(inputs.to(self.engine.device))

    def compute(self, inputs: Inputs) -> tuple[str, ...]:
        """The device's work. It is the same whether launched kernel by kernel or captured and replayed."""
        with self.engine.twins():
            with self.engine.autocast():
                terms, losses = self.losses(inputs)
            self.optimizer.zero_grad(set_to_none=True)
            torch.stack([term.float() for term in terms.values()]).sum().backward()
            carries = [loss.carry for loss in losses]
            self.method.gradients(self.peers, carries)
            self.optimizer.step()
            self.method.commit(carries)
            for follower in (self.average, self.teaching):
                if follower is not None:
                    follower.update()
            self.ledger.add(terms)
            values = self.method.keep(carries)
            self.memory.store(inputs.slots, inputs.stream.images, inputs.stream.labels, values)
        return tuple(terms)

    def losses(self, inputs: Inputs) -> tuple[dict[str, Tensor], list[Losses]]:
        """All terms of all peers by name (the total loss is their sum), and what each peer's pass gave."""
        method, memory, random = self.method, self.memory, self.generators["method"]
        views = method.draw(inputs.stream, inputs.plan, memory, random)
        losses = [method.losses(peer, views, memory, random) for peer in self.peers]
        for peer, loss in zip(self.peers, losses, strict=True):
            _check(loss, method, peer.branch is not None or self.teaching is not None)
        losses = method.couple(self.peers, views, losses)
        terms: dict[str, Tensor] = {}
        for number, (peer, loss) in enumerate(zip(self.peers, losses, strict=True), start=1):
            prefix = f"net{number}/" if len(self.peers) > 1 else ""
            terms |= {prefix + name: term for name, term in loss.terms.items()}
            if peer.branch is not None:
                extra = peer.branch.losses(loss.tap, self.generators["branch"])
                terms |= {f"{prefix}branch/{name}": term for name, term in extra.items()}
            if self.teaching is not None:
                extra = self.teaching.losses(number - 1, loss.tap)
                terms |= {f"{prefix}teacher/{name}": term for name, term in extra.items()}
        return terms, losses


def _check(loss: Any, method: Method, plugged: bool) -> None:
    """Tell whoever wrote a method what its ``losses`` lacks."""
    lack = None
    if not isinstance(loss, Losses):
        lack = "Losses", f"{type(loss).__name__}; return Losses(terms, tap)"
    elif not loss.terms:
        lack = "at least one term", "none; leave a batch without loss out in plan, by None"
    elif odd := [name for name, term in loss.terms.items() if not (isinstance(term, Tensor) and term.dim() == 0)]:
        lack = "terms that are tensors of one number", f"another {odd[0]!r}; take its mean"
    elif plugged and loss.tap is None:
        lack = "a tap for the branch or teacher", "none; make it with peer.look or peer.tap"
    if lack is not None:
        raise ConfigError(f"expected {lack[0]} from losses() of method {method.config.name!r}, got {lack[1]}")
