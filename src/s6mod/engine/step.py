"""The device part of one training step: draw, losses, branch, one backward, one optimiser step, memory write.

Nothing here reads a value back to the host.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from s6mod.engine.settings import Engine
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Batch, Losses, Method, OptimizerConfig, Peer, Plan


class Ledger:
    """Sums of the loss terms since they were last read, kept on the device."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = 0

    def add(self, terms: dict[str, Tensor]) -> None:
        """Add one step's terms."""
        for name, term in terms.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(term, dtype=torch.float32)
            self.sums[name].add_(term.detach())

    def read(self) -> dict[str, float]:
        """Mean of each term since the last reading (this waits for the device), and start anew."""
        if not self.steps:
            return {}
        values = torch.stack(list(self.sums.values())).tolist()
        means = {name: value / self.steps for name, value in zip(self.sums, values, strict=True)}
        for total in self.sums.values():
            total.zero_()
        self.steps = 0
        return means

    def state_dict(self) -> dict[str, Any]:
        """The sums not yet read."""
        return {"sums": dict(self.sums), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from sums saved before."""
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.steps = state["steps"]


def make_optimizer(config: OptimizerConfig, peers: Iterable[Peer]) -> torch.optim.Optimizer:
    """One optimiser over everything that learns; since Adam treats each parameter alone it equals one per peer."""
    kinds: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    parameters = [p for peer in peers for p in peer.learned_parameters()]
    return kinds[config.name](
        parameters,
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )


def compute_losses(
    method: Method,
    peers: list[Peer],
    stream: Batch,
    plan: Plan,
    memory: ReplayMemory,
    generators: dict[str, torch.Generator],
) -> tuple[dict[str, Tensor], list[Losses]]:
    """All terms of all peers by name (the total loss is their sum), and what each peer's pass gave."""
    views = method.draw(stream, plan, memory, generators["method"])
    losses = [method.losses(peer, views, memory, generators["method"]) for peer in peers]
    losses = method.couple(peers, views, losses)
    terms: dict[str, Tensor] = {}
    for number, (peer, loss) in enumerate(zip(peers, losses, strict=True), start=1):
        prefix = f"net{number}/" if len(peers) > 1 else ""
        terms |= {prefix + name: term for name, term in loss.terms.items()}
        if peer.branch is not None:
            extra = peer.branch.losses(loss.tap, generators["branch"])
            terms |= {f"{prefix}branch/{name}": term for name, term in extra.items()}
    return terms, losses


def train_step(
    method: Method,
    peers: list[Peer],
    optimizer: torch.optim.Optimizer,
    memory: ReplayMemory,
    generators: dict[str, torch.Generator],
    engine: Engine,
    ledger: Ledger,
    stream: Batch,
    plan: Plan,
    slots: Tensor,
) -> None:
    """One step, from device inputs to updated parameters, buffers and memory."""
    with engine.autocast():
        terms, losses = compute_losses(method, peers, stream, plan, memory, generators)
    optimizer.zero_grad(set_to_none=True)
    torch.stack([term.float() for term in terms.values()]).sum().backward()
    optimizer.step()
    method.commit([loss.carry for loss in losses])
    memory.store(slots, stream.images, stream.labels)
    ledger.add(terms)
