"""Captured steps: a step that recurs is recorded once as a CUDA graph and replayed with new inputs.

A step on small images is bound by the launching of its kernels; a replay launches all of them at once. Steps of the
same signature (code path and input shapes) run the same kernels, so the first few run eagerly, as ordinary steps that
also warm everything up; capturing itself computes nothing. The learner's state is therefore the same as without it.
"""

import gc
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from s6mod.engine.step import Inputs, Step
from s6mod.errors import ConfigError
from s6mod.methods.base import Batch, Plan

MOST_GRAPHS = 128  # of a learner, each with memory of its own; MOSE on Tiny-ImageNet has 98 whose signature recurs
EAGER_STEPS = 3  # of each signature before it is captured: shapes that come only once or twice are never captured
_capturing = Lock()


class CapturedStep:
    """A ``Step`` on the CUDA stream of its caller, replayed where its signature recurs.

    As with everything in PyTorch, a caller who changes to another stream lets it wait for the one before.
    """

    def __init__(self, step: Step) -> None:
        self.eager = step
        self.pool: Any = torch.cuda.graph_pool_handle()
        self.seen: Counter[Hashable] = Counter()
        self.graphs: dict[Hashable, _Recording] = {}

    def __call__(self, inputs: Inputs) -> tuple[str, ...]:
        """Take the step with inputs that may still be on the host; the names of its loss terms."""
        device = self.eager.engine.device
        caller = torch.cuda.current_stream(device)
        # The device has few work queues, and what waits in one holds up every stream behind it: a run that has a stream
        # of its own gets no second one. Beside the default stream, on which nothing can be captured, there is one.
        if caller != torch.cuda.default_stream(device):
            return self._take(inputs)
        # What the caller's stream computed must be there before we read it, and stay until we have.
        self._beside.wait_stream(caller)
        with torch.cuda.stream(self._beside):
            if inputs.stream.images.is_cuda:
                inputs.stream.images.record_stream(self._beside)
            terms = self._take(inputs)
        # Whoever goes on after the step (an evaluation, a saved state) sees its results.
        caller.wait_stream(self._beside)
        return terms

    @cached_property
    def _beside(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.eager.engine.device)

    def _take(self, inputs: Inputs) -> tuple[str, ...]:
        signature = _signature(inputs)
        due = self.seen[signature] >= EAGER_STEPS and len(self.graphs) < MOST_GRAPHS
        if signature not in self.graphs and due:
            self.graphs[signature] = _Recording(self.eager, inputs, self.pool)
        if signature in self.graphs:
            return self.graphs[signature].replay(inputs)
        self.seen[signature] += 1
        return self.eager(inputs)


class _Recording:
    """One graph with the static inputs it reads."""

    def __init__(self, step: Step, inputs: Inputs, pool: Any) -> None:
        device = step.engine.device
        self.images = torch.empty_like(inputs.stream.images, device=device)
        # All small integer inputs travel in one copy.
        self.integers = torch.zeros(len(_pack(inputs)), dtype=torch.int64, device=device)
        parts = self.integers.split(
            [len(inputs.stream.labels), len(inputs.slots), *map(len, inputs.plan.rows.values())]
        )
        rows = dict(zip(inputs.plan.rows, parts[2:], strict=True))
        static = Inputs(Batch(self.images, parts[0]), Plan(rows, inputs.plan.path), parts[1])
        self.graph = torch.cuda.CUDAGraph()
        for generator in step.generators.values():
            self.graph.register_generator_state(generator)
        # Other threads may predict meanwhile: what they allocate is no part of the capture, nor does it break it.
        stream, mode = torch.cuda.current_stream(device), "thread_local"
        with _told(), _undisturbed(), torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode=mode):
            self.terms = step.compute(static)

    def replay(self, inputs: Inputs) -> tuple[str, ...]:
        """Run the recorded step on new inputs."""
        self.images.copy_(inputs.stream.images, non_blocking=True)
        self.integers.copy_(_pack(inputs), non_blocking=True)
        self.graph.replay()
        return self.terms


@contextmanager
def _undisturbed() -> Iterator[None]:
    """One capture at a time, and no garbage is collected meanwhile.

    A graph of a learner that is gone, destroyed by the collector now, would break the capture and every later one of
    the process. PyTorch up to 2.8 collected garbage before each capture.
    """
    with _capturing:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()


@contextmanager
def _told() -> Iterator[None]:
    """What CUDA says of a step that cannot be captured, in a sentence; other errors pass."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "captur" not in str(error):
            raise
        raise ConfigError(
            f"expected a step that reads nothing back from the device, got: {str(error).partition(chr(10))[0]}; "
            "see what s6mod.checks.check_reads_nothing_back says of the method, or set engine.capture=off"
        ) from error


def _pack(inputs: Inputs) -> Tensor:
    return torch.cat([inputs.stream.labels, inputs.slots, *inputs.plan.rows.values()])


def _signature(inputs: Inputs) -> Hashable:
    rows = tuple((name, len(value)) for name, value in inputs.plan.rows.items())
    return inputs.plan.path, tuple(inputs.stream.images.shape), rows
