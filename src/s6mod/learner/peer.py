"""Making a peer: a network and its branch, each from a seed of its own, in the place where the engine computes."""

from torch import nn

from s6mod.branch import Branch, branches
from s6mod.branch.base import BranchShape
from s6mod.engine.settings import Engine
from s6mod.learner.config import LearnerConfig
from s6mod.methods.base import Method, Peer
from s6mod.networks import Network
from s6mod.random import seeded


def make_peer(config: LearnerConfig, method: Method, engine: Engine, number: int, module: nn.Module | None) -> Peer:
    """The peer of that number, in train mode; its convolutions lie in memory as the engine wants them.

    ``module``: what a person brought in place of the method's network.
    """
    with seeded(config.seed, f"network {number}"):
        network: Network = method.make_network() if module is None else method.adapt(module)
    branch: Branch | None = None
    if config.branch is not None:
        shape = BranchShape(network.map_channels, network.map_size, method.num_classes)
        with seeded(config.seed, f"branch {number}"):
            branch = branches[config.branch.name].build(config.branch, shape)
    peer = Peer(network, branch).to(engine.device).train()
    peer.number = number
    for module in peer.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=engine.memory_format)
    return peer
