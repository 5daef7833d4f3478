"""Prediction: all score tables from one forward pass of each peer, in large batches, leaving no trace.

Networks are put into eval mode and back, no generator is touched: evaluating at any step changes nothing later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from s6mod.engine.settings import Engine
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Method, Peer
from s6mod.networks import Output


class Predictor:
    """Score tables for images, against the memory as it was when the predictor was made."""

    def __init__(self, method: Method, peers: list[Peer], memory: ReplayMemory, engine: Engine) -> None:
        self.method, self.peers, self.engine = method, peers, engine
        self.reference = None
        if len(memory):
            with _evaluating(peers):
                chunks = [
                    [out.features for out in self._forward(images)]
                    for images in memory.images[: len(memory)].split(engine.eval_batch)
                ]
                features = [torch.cat(parts) for parts in zip(*chunks, strict=True)]
                self.reference = method.reference(features, memory.device_labels[: len(memory)])

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        """uint8 images (B, C, H, W) on the device -> named tables (B, num_classes), the method's and the branch's."""
        with _evaluating(self.peers):
            chunks = [self._scores(part) for part in images.split(self.engine.eval_batch)]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def _forward(self, images: Tensor) -> list[Output]:
        inputs = self.method.prepare(images).contiguous(memory_format=self.engine.memory_format)
        with self.engine.autocast():
            return [peer.network(inputs) for peer in self.peers]

    def _scores(self, images: Tensor) -> dict[str, Tensor]:
        outputs = self._forward(images)
        tables = self.method.scores(outputs, self.reference)
        with self.engine.autocast():
            heads = [
                peer.branch.scores(out.feature_map)
                for peer, out in zip(self.peers, outputs, strict=True)
                if peer.branch is not None
            ]
        own = [head.float() for head in heads if head is not None]
        if own:
            tables["branch"] = torch.stack(own).mean(0)
        return tables


@contextmanager
def _evaluating(peers: list[Peer]) -> Iterator[None]:
    for peer in peers:
        peer.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for peer in peers:
            peer.train()
