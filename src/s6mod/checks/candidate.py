"""How a method under test is run, and how the states of two runs are compared, leaf by leaf and to the bit."""

import json
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from s6mod.branch.base import Branch, BranchConfig, Tap, branches
from s6mod.checks.digit_stream import MEMORY_SIZE, NUM_CLASSES, PREFIX, TASK_ENDS, stream
from s6mod.config import merge
from s6mod.engine.checkpoint import Tree
from s6mod.learner import Learner
from s6mod.learner.config import LearnerConfig
from s6mod.methods import Batch, MethodConfig, methods
from s6mod.teacher import TeacherConfig, teachers

AnyMethod: TypeAlias = str | dict[str, Any] | MethodConfig
AnyBranch: TypeAlias = str | dict[str, Any] | BranchConfig | None
AnyTeacher: TypeAlias = str | dict[str, Any] | TeacherConfig | None
State: TypeAlias = dict[str, Any]  # the leaves of a learner's state by their paths

# For a name, or a mapping that leaves them open; a configuration that is already made keeps its sizes.
SMALL: dict[str, Any] = {"network": {"width": 4}, "memory_batch": 3}
ENOUGH: dict[str, Any] = {"network": {"width": 12}, "memory_batch": 8}


class Footprint(NamedTuple):
    """What a learner holds beside its state."""

    device_labels: Tensor  # of the memory
    memory_bytes: int
    method_bytes: int  # of the method and its peers


class Record(NamedTuple):
    """An uninterrupted run over the stream."""

    states: list[State]  # after each batch
    footprints: list[Footprint]  # after each batch
    saved: dict[str, bytes]  # the files saved after ``PREFIX`` batches


class Candidate:
    """A method and its plug-ins under test."""

    def __init__(self, method: AnyMethod, branch: AnyBranch, teacher: AnyTeacher = None) -> None:
        self.method, self.branch, self.teacher = method, branch, teacher
        self.method_name = methods.configure(method).name
        plug_ins = [
            registry.configure(each).name for registry, each in ((branches, branch), (teachers, teacher)) if each
        ]
        self.name = " + ".join([self.method_name, *plug_ins])

    def learner(self, sizes: dict[str, Any] = SMALL, **options: Any) -> Learner:
        """A fresh learner."""
        method = {"name": self.method} if isinstance(self.method, str) else self.method
        if isinstance(method, dict):
            method = merge(sizes, method)
        usual = {"num_classes": NUM_CLASSES, "memory_size": MEMORY_SIZE, "predict_among": "all"}
        options = {**usual, "engine": {"device": "cpu"}, **options}
        return Learner(method, self.branch, teacher=self.teacher, **options)

    def record(self) -> Record:
        """The uninterrupted run, made once for all checks."""
        config = self.learner().config
        classes: tuple[Any, ...] = (
            methods[config.method.name],
            config.branch and branches[config.branch.name],
            config.teacher and teachers[config.teacher.name],
        )
        return _record(json.dumps(config.plain()), classes)

    def trajectory(self) -> list[State]:
        """The states of the uninterrupted run."""
        return self.record().states

    def expect(self, holds: bool, what: str, instead: str) -> None:
        """Raise AssertionError in one sentence unless it holds."""
        if not holds:
            raise AssertionError(f"expected {self.name} to {what}, got {instead}")

    def expect_same(self, ours: list[State], theirs: list[State], what: str, ignore: tuple[str, ...] = ()) -> None:
        """Demand equal states, to the bit, but for leaves whose path matches a pattern of ``ignore``."""
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1):
            path = difference(a, b, ignore=ignore)
            self.expect(not path, what, f"another {path} after batch {number} of {len(ours)}")


@lru_cache(maxsize=4)
def _record(config: str, classes: tuple[Any, ...]) -> Record:
    """By the classes that bear the names in the configuration now: a method may be registered anew."""
    learner = Learner.from_config(LearnerConfig.parse(json.loads(config)))
    record = Record([], [], {})

    def note(learner: Learner) -> None:
        memory, method_bytes = learner.memory, _bytes([learner.method, *learner.peers], set())
        record.footprints.append(Footprint(memory.device_labels.clone(), memory.nbytes, method_bytes))
        if learner.steps == PREFIX:
            with TemporaryDirectory() as folder:
                learner.save(folder)
                record.saved.update({file.name: file.read_bytes() for file in Path(folder).iterdir()})

    record.states.extend(run(learner, stream(), after=note))
    return record


def run(
    learner: Learner,
    batches: Iterable[Batch],
    start: int = 0,
    ends: frozenset[int] = TASK_ENDS,
    after: Callable[[Learner], None] = lambda learner: None,
) -> list[State]:
    """Learn batches from position ``start`` of the stream on; the state after each."""
    states = []
    for position, batch in enumerate(batches, start=start + 1):
        try:
            learner.learn(batch.images, batch.labels)
        except Exception as error:
            name, labels = learner.config.method.name, batch.labels.tolist()
            raise AssertionError(f"expected {name} to learn labels {labels}, got {error!r}") from error
        after(learner)
        if position in ends:
            learner.end_task()
        states.append(flat(learner.state_dict()))
    return states


def _bytes(part: Any, met: set[int]) -> int:
    """Bytes of all arrays that a module or container leads to, registered or not."""
    if id(part) in met:
        return 0
    met.add(id(part))
    if isinstance(part, Tensor | np.ndarray):
        return part.nbytes
    inner = vars(part) if isinstance(part, nn.Module) else part
    inner = list(inner.values()) if isinstance(inner, dict) else inner
    return sum(_bytes(one, met) for one in inner) if isinstance(inner, list | tuple | set | deque) else 0


def flat(tree: Tree, where: str = "") -> State:
    """Copies of the leaves of a tree by their paths."""
    leaves: State = {}
    for key, leaf in tree.items():
        path = f"{where}/{key}".lstrip("/")
        if isinstance(leaf, dict):
            leaves |= flat(leaf, path)
        else:
            leaves[path] = leaf.clone() if isinstance(leaf, Tensor) else copy(leaf)
    return leaves


def difference(ours: State, theirs: State, only: str = "*", ignore: tuple[str, ...] = ()) -> str:
    """The path of the first leaf that only one has or that differs; empty if there is none."""
    paths = [path for path in ours | theirs if fnmatch(path, only) and not any(fnmatch(path, p) for p in ignore)]
    return next((p for p in paths if not (p in ours and p in theirs and _equal(ours[p], theirs[p]))), "")


def _equal(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)


def silence(branch: Branch, calls: list[int]) -> None:
    """Multiply the branch's terms by 0, and note each time it is asked for them."""
    losses = branch.losses

    def silent(tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        calls.append(len(tap.logits))
        return {name: 0.0 * term for name, term in losses(tap, generator).items()}

    branch.losses = silent  # type: ignore[method-assign]
