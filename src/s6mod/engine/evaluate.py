"""Prediction: all score tables from one forward pass of each peer, in large batches, leaving no trace.

Networks are put into eval mode and back, no generator is touched: evaluating at any step changes nothing later. What
BatchNorm normalises by when predicting is chosen here: its running averages, or the statistics of the memory.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from s6mod.engine.settings import Engine
from s6mod.memory import ReplayMemory
from s6mod.methods.base import Method, Peer
from s6mod.networks import Output

Statistics = Literal["running", "memory"]
CALIBRATION_BATCH = 500  # images that BatchNorm takes statistics of at once; not eval_batch, which changes no result


class Predictor:
    """Score tables for images, against the memory as it was when the predictor was made."""

    def __init__(
        self, method: Method, peers: list[Peer], memory: ReplayMemory, engine: Engine, statistics: Statistics
    ) -> None:
        self.method, self.memory, self.engine = method, memory, engine
        self.peers = self._calibrated(peers) if statistics == "memory" and len(memory) > 1 else peers

    @cached_property
    def reference(self) -> Any:
        """What the method makes of the whole memory; computed once, and only if a table needs it."""
        stored = len(self.memory)
        if not stored:
            return None
        chunks = [
            [out.features for out in self._forward(images, self.peers)]
            for images in self.memory.images[:stored].split(self.engine.eval_batch)
        ]
        features = [torch.cat(parts) for parts in zip(*chunks, strict=True)]
        return self.method.reference(features, self.memory.device_labels[:stored])

    def __call__(self, images: Tensor, only: str | None = None) -> dict[str, Tensor]:
        """uint8 images (B, C, H, W) on the device -> named tables (B, num_classes), the method's and the branch's.

        ``only``: the one table that is wanted; others may be left out if that saves work.
        """
        from_memory = only is None or only not in self.method.memory_free | {"branch"}
        with self._evaluating():
            reference = self.reference if from_memory else None
            chunks = [self._scores(part, reference) for part in images.split(self.engine.eval_batch)]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def outputs(self, images: Tensor) -> Iterator[list[Output]]:
        """What each peer's network answers, in eval mode, batch after batch."""
        for part in images.split(self.engine.eval_batch):
            with self._evaluating():
                found = self._forward(part, self.peers)
            yield found

    def _calibrated(self, peers: list[Peer]) -> list[Peer]:
        """Copies of the networks whose BatchNorm has the statistics of the memory's images, un-augmented.

        The memory comes in equal shares, each a sample of all of it, and a layer keeps the mean over them.
        """
        copies = [Peer(copy.deepcopy(peer.network).eval(), peer.branch) for peer in peers]
        layers = [layer for peer in copies for layer in peer.network.modules() if isinstance(layer, _BatchNorm)]
        stored = self.memory.images[: len(self.memory)]
        shares = -(-len(stored) // CALIBRATION_BATCH)
        with torch.no_grad(), self.engine.twins():
            for share in range(shares):
                for layer in layers:
                    layer.train().momentum = 1 / (share + 1)
                self._forward(stored[share::shares], copies)
        return copies

    def _forward(self, images: Tensor, peers: list[Peer]) -> list[Output]:
        inputs = self.method.prepare(images).contiguous(memory_format=self.engine.memory_format)
        with self.engine.autocast():
            return [peer.network(inputs) for peer in peers]

    def _scores(self, images: Tensor, reference: Any) -> dict[str, Tensor]:
        outputs = self._forward(images, self.peers)
        tables = self.method.scores(outputs, reference)
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
    def _evaluating(self) -> Iterator[None]:
        for peer in self.peers:
            peer.eval()
        try:
            with torch.inference_mode(), self.engine.twins():
                yield
        finally:
            for peer in self.peers:
                peer.train()
