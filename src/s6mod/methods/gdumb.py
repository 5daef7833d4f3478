"""GDumb: a greedy sampler and a dumb learner. The stream is only stored; who asks gets a network trained on the memory.

    L = CE(g(C(A m)), q)

with m a batch of the memory, C cutmix and q the labels, mixed as the images are. The memory keeps as many samples of
each class as it can (rule ``greedy``). Asked to predict, a copy of the learner's network, which no step has touched, is
trained on the memory alone, by SGD with momentum and a cosine rate with warm restarts. What is drawn follows from the
seed and the number of batches learned: asking twice gives the same answer, and changes nothing that is learned later.
"""

import copy
import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from s6mod.augment import uniform_numbers
from s6mod.branch.base import Targets
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Peer, Task, methods
from s6mod.methods.replay import ReplayConfig, ReplayMethod
from s6mod.precision import full_precision

MOMENTUM = 0.9
LOWEST = 0.01  # rate at the end of a cycle, in shares of that at its begin


class GDumbConfig(ReplayConfig):
    """Options of GDumb; ``optimizer`` means nothing here."""

    name: Literal["gdumb"] = "gdumb"
    memory_batch: int = Field(16, ge=1, description="images in each step of the training on the memory")
    passes: int = Field(
        32,
        ge=1,
        description="passes over the memory when asked; a power of two ends with a cycle of the rate",
    )
    lr: float = Field(0.05, gt=0, description="learning rate at the begin of each cycle; it falls to a hundredth")
    cutmix_probability: float = Field(0.5, ge=0, le=1, description="that a batch is mixed")


@methods.register("gdumb")
class GDumb(ReplayMethod):
    """A balanced memory, and a network that is trained on it when asked."""

    config_class = GDumbConfig
    config: GDumbConfig
    reservoir = "greedy"
    has_logits = False  # no step has any: there is no step

    def plan(self, labels: Tensor, memory: ReplayMemory, task: Task, generator: torch.Generator) -> None:
        """Every batch is only stored."""

    def ask(self, peers: list[Peer], memory: ReplayMemory, generator: torch.Generator) -> list[Peer]:
        """A copy of the fresh network, trained on the memory in batches of nearly equal size."""
        network, config = copy.deepcopy(peers[0].network).requires_grad_(True).train(), self.config
        optimizer = torch.optim.SGD(network.parameters(), lr=config.lr, momentum=MOMENTUM)
        batches = -(-len(memory) // config.memory_batch)
        for number in range(config.passes):
            order = torch.randperm(len(memory), generator=generator, device=memory.device)
            for position, rows in enumerate(order.tensor_split(batches)):
                optimizer.param_groups[0]["lr"] = rate(number + position / batches, config.lr)
                images, labels = memory.gather(rows)
                view, targets = cutmix(self.augment(images, generator), labels, config.cutmix_probability, generator)
                take_step(optimizer, F.cross_entropy(network(view).logits.float(), targets.soft(self.num_classes)))
        return [Peer(network, None)]


@full_precision
def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down ``loss``."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.clear_autocast_cache()  # which holds the weights as they were, in low precision


def rate(passes: float, top: float) -> float:
    """The learning rate after so many passes over the memory.

    It rises evenly within the first pass; then it falls by half a cosine in cycles of 1, 2, 4, ... passes.
    """
    share = passes
    if passes >= 1:
        begin = 2 ** math.floor(math.log2(passes))  # of the cycle, and its length
        share = (1 + math.cos(math.pi * (passes / begin - 1))) / 2
    return top * (LOWEST + (1 - LOWEST) * share)


def cutmix(images: Tensor, labels: Tensor, probability: float, generator: torch.Generator) -> tuple[Tensor, Targets]:
    """Images (B, C, H, W) in which, with ``probability``, one box is that of another image, and what they are then.

    The box is the same in the whole batch. Its area is uniform, its middle anywhere; what lies outside is cut off.
    """
    chance, area, *middle = uniform_numbers(generator, 4)
    partners = torch.randperm(len(images), generator=generator, device=images.device)
    down, across = (
        (torch.arange(side, device=images.device) + 0.5 - at * side).abs() < area.sqrt() * side / 2
        for at, side in zip(middle, images.shape[2:], strict=True)
    )
    box = down[:, None] & across & (chance < probability)  # (H, W)
    mix = box.float().mean().expand(len(images))
    return torch.where(box, images[partners], images), Targets(labels, labels[partners], mix)
