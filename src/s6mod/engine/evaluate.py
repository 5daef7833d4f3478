"""What predicts: which weights, which statistics of BatchNorm, which scores, which classes. It leaves no trace.

A ``Predictor`` is one choice of weights, statistics and classes; it gives all score tables from one forward pass of
each peer, in large batches. Networks are put into eval mode and back, no generator is touched: evaluating at any step
changes nothing later.
"""

import copy
from collections.abc import Iterator, Sequence
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

Weights = Literal["latest", "averaged", "mean"]  # mean: of the latest and a teacher's
Statistics = Literal["running", "memory"]
Among = Literal["all", "seen"]
ENSEMBLE = "ensemble"  # the name of the table that is made of those in TOGETHER
TOGETHER = ("head", "ncm", "branch")
CALIBRATION_BATCH = 500  # images that BatchNorm takes statistics of at once; not eval_batch, which changes no result


class Predictor:
    """Score tables for images, against the memory as it was when the predictor was made.

    ``peers`` bring the weights: the latest, the averaged ones or a mean. ``classes``: those to choose from, by default
    all; others score -inf.
    """

    def __init__(
        self,
        method: Method,
        peers: list[Peer],
        memory: ReplayMemory,
        engine: Engine,
        statistics: Statistics,
        classes: Sequence[int] | None = None,
    ) -> None:
        self.method, self.memory, self.engine = method, memory, engine
        self.peers = self._calibrated(peers) if statistics == "memory" and len(memory) > 1 else peers
        self.barred: Tensor | None = None  # (num_classes,) bool
        if classes is not None:
            self.barred = torch.ones(method.num_classes, dtype=torch.bool)
            self.barred[list(classes)] = False
            self.barred = self.barred.to(engine.device)

    def frozen(self, table: str) -> "Predictor":
        """The same for good, whatever is learned later: copies, in eval mode, that threads may share.

        Of the memory it has what ``table`` needs. Other tables that need more are left out.
        """
        with self._evaluating():
            reference = self.reference if self._needs_reference(table) else None
        still = copy.copy(self)
        del still.memory
        still.method = copy.deepcopy(self.method)
        still.peers = [
            Peer(copy.deepcopy(peer.network), copy.deepcopy(peer.branch)).eval().requires_grad_(False)
            for peer in self.peers
        ]
        still.reference = reference
        return still

    @property
    def nbytes(self) -> int:
        """Bytes of its networks, branches, buffers and, if a table needed it, its reference."""
        tensors = [t for part in (*self.peers, self.method) for t in (*part.parameters(), *part.buffers())]
        tensors += [t for t in self.__dict__.get("reference") or () if isinstance(t, Tensor)]
        return sum(t.numel() * t.element_size() for t in tensors)

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

        ``only``: the one table that is wanted; others are left out where that saves work. The ensemble is made only
        where it is wanted.
        """
        with self._evaluating():
            chunks = [self._scores(part, only) for part in images.split(self.engine.eval_batch)]
        return self._among({name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}, only)

    def at_once(self, images: Tensor, only: str) -> Tensor:
        """One table of one batch, as a function of the images that can be traced.

        It enters no mode: whoever calls it has put the networks into eval mode, and has asked for ``reference`` before.
        """
        return self._among(self._scores(images, only), only)[only]

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

    def _scores(self, images: Tensor, only: str | None) -> dict[str, Tensor]:
        reference = self.reference if self._needs_reference(only) else None
        outputs = self._forward(images, self.peers)
        tables = self.method.scores(outputs, reference)
        if only not in (None, ENSEMBLE, "branch"):
            return tables
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

    def _needs_reference(self, table: str | None) -> bool:
        return table is None or table not in self.method.memory_free | {"branch"}

    def _among(self, tables: dict[str, Tensor], only: str | None) -> dict[str, Tensor]:
        if self.barred is not None:
            tables = {name: table.masked_fill(self.barred, -torch.inf) for name, table in tables.items()}
        if only == ENSEMBLE:
            tables[ENSEMBLE] = ensemble(tables)
        return tables

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        learning = [peer for peer in self.peers if peer.training]  # none of those that are frozen
        for peer in learning:
            peer.eval()
        try:
            with torch.inference_mode(), self.engine.twins():
                yield
        finally:
            for peer in learning:
                peer.train()


def ensemble(tables: dict[str, Tensor]) -> Tensor:
    """The mean of the tables head, ncm and branch, as far as they are there; it has no parameter.

    Before, each is standardised per image: minus its mean over the candidate classes, divided by their standard
    deviation. Candidates are the classes that have a finite score in each table; others score -inf. The tables of a
    pair of networks are of both together.
    """
    scores = torch.stack([tables[name] for name in TOGETHER if name in tables])  # (T, B, num_classes)
    candidates = scores.isfinite().all(0)  # (B, num_classes)
    number = candidates.sum(1, keepdim=True).clamp_min(1)
    mean = scores.where(candidates, 0).sum(2, keepdim=True) / number
    centred = (scores - mean).where(candidates, 0)
    deviation = (centred.square().sum(2, keepdim=True) / number).sqrt()
    standardised = centred / deviation.clamp_min(torch.finfo(scores.dtype).tiny)
    return standardised.mean(0).masked_fill(~candidates, -torch.inf)
