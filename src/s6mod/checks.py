"""Behaviour that every method must show, with and without a branch: register a method and run it through these.

Each check is a plain function of a method and a branch that makes one statement, and raises AssertionError with one
sentence where it does not hold. They learn digits of a few pixels on the CPU and need no test framework. How accurate
or fast a method is on real data is not their business.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from s6mod.branch.base import Branch, BranchConfig, Tap, branches
from s6mod.config import merge
from s6mod.data.dataset import Dataset
from s6mod.data.digits import load_digits
from s6mod.engine.checkpoint import Tree
from s6mod.errors import ConfigError
from s6mod.learner import Learner, LearnerConfig
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, MethodConfig, methods

AnyMethod: TypeAlias = str | dict[str, Any] | MethodConfig
AnyBranch: TypeAlias = str | dict[str, Any] | BranchConfig | None
State: TypeAlias = dict[str, Any]  # the leaves of a learner's state by their paths

SHAPE = (3, 12, 12)  # of the images: the last map has 2x2 places, so that BatchNorm can bear a batch of one
NUM_CLASSES = 6
MEMORY_SIZE = 5
# The labels of the stream's batches: one class in a batch, one image in a batch, and class 4 first seen within a task.
LABELS = ((0, 1), (1, 1), (2, 3), (3,), (4, 0))
TASK_ENDS = frozenset({2})  # after so many batches
PREFIX = 3  # batches: they end within a task, after a boundary
EQUAL_BATCHES = (2, 4)  # two positions of the last task with batches of one size

# For a name, or a mapping that leaves them open; a configuration that is already made keeps its sizes.
SMALL: dict[str, Any] = {"network": {"width": 4}, "memory_batch": 3}
ENOUGH: dict[str, Any] = {"network": {"width": 12}, "memory_batch": 8}


def check_learns(method: AnyMethod, branch: AnyBranch = None) -> None:
    """It tells two digits apart, nine times in ten, within 60 steps of four images."""
    subject, best = _Subject(method, branch), 0.0
    learner, train, test = subject.learner(ENOUGH, memory_size=40), _two_digits("train"), _two_digits("test")
    for step in range(60):
        rows = torch.arange(4 * step, 4 * step + 4) % len(train.labels)
        learner.learn(train.images[rows], train.labels[rows])
        if step % 5 == 4:
            hits = torch.as_tensor(learner.predict(test.images)) == test.labels
            best = max(best, hits.double().mean().item())
        if best >= 0.9:
            return
    subject.expect(False, "reach 90 % on two digits within 60 steps", f"{100 * best:.0f} %")


def check_resumes(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Saved within a task, after a boundary, and loaded, it goes on to the same bits as if it had never stopped."""
    subject = _Subject(method, branch)
    with TemporaryDirectory() as folder:
        for name, content in subject.record().saved.items():
            Path(folder, name).write_bytes(content)
        loaded = Learner.load(folder)
    subject.expect_same([_flat(loaded.state_dict())], subject.trajectory()[PREFIX - 1 : PREFIX], "load what it saved")
    resumed = _run(loaded, _stream()[PREFIX:], start=PREFIX)
    subject.expect_same(resumed, subject.trajectory()[PREFIX:], "resume as if it had never stopped")


def check_follows_its_seed(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Its trajectory is that of its seed, whatever the process drew before; another seed is another network."""
    subject = _Subject(method, branch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        again = _run(subject.learner(), _stream()[:PREFIX])
    subject.expect_same(again, subject.trajectory()[:PREFIX], "repeat its trajectory with the same seed")
    first, second = subject.learner(seed=0), subject.learner(seed=1)
    for learner in (first, second):
        learner.build(SHAPE)
    for ours, theirs in zip(first.peers, second.peers, strict=True):
        differ = _difference(_flat(ours.network.state_dict()), _flat(theirs.network.state_dict()))
        subject.expect(bool(differ), "start from another network with another seed", "the same one")


def check_keeps_to_its_memory(method: AnyMethod, branch: AnyBranch = None) -> None:
    """The memory holds what the stream brought, within its budget, and the method hoards nothing beside it."""
    subject, known = _Subject(method, branch), set()
    budget = ReplayMemory(MEMORY_SIZE, SHAPE, "sequential", torch.device("cpu")).nbytes
    for batch, state, held in zip(_stream(), subject.trajectory(), subject.record().held, strict=True):
        known |= _samples(batch.images, batch.labels)
        seen, filled = state["memory/seen"], state["memory/filled"]
        subject.expect(
            (seen, filled) == (len(known), min(len(known), MEMORY_SIZE)),
            f"leave writing the memory to the learner, which offered {len(known)} samples",
            f"{seen} offered and {filled} stored",
        )
        within = held.memory_bytes <= budget
        subject.expect(within, f"keep its memory within {budget} bytes", f"{held.memory_bytes}")
        for labels in (state["memory/labels"], held.device_labels):
            stored = _samples(state["memory/images"][:filled], labels[:filled])
            subject.expect(stored <= known, "store only samples of the stream", "others in memory")
    before, after = (subject.record().held[position].method_bytes for position in EQUAL_BATCHES)
    subject.expect(after <= before, "hold no more after more batches of a task", f"{after - before} bytes more")


def check_declares_boundaries(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Moving or dropping ``end_task`` changes nothing, unless it declares that it needs boundaries."""
    subject = _Subject(method, branch)
    if methods[subject.method_name].needs_boundaries:
        refused = ""
        try:
            subject.learner(boundaries="none")
        except ConfigError as error:
            refused = str(error)
        one_sentence = refused != "" and "\n" not in refused
        subject.expect(one_sentence, "refuse boundaries='none' in one sentence", repr(refused))
        return
    moved = _run(subject.learner(), _stream(), ends=frozenset({1, 4}))
    dropped = _run(subject.learner(boundaries="none"), _stream())
    for other, how in ((moved, "moved"), (dropped, "dropped")):
        what = f"follow one trajectory when end_task is {how}, since it declares no boundaries"
        subject.expect_same(other, subject.trajectory(), what, ignore=("host/task/*", "memory/tasks"))


def check_ignores_the_future(method: AnyMethod, branch: AnyBranch = None) -> None:
    """The batch that it is given decides, not what comes later, and not what else its arrays hold at any time."""
    subject = _Subject(method, branch)
    poisoned = _run(subject.learner(), _true_for_now())
    subject.expect_same(poisoned, subject.trajectory()[:PREFIX], "learn from the batch it is given alone")


def check_bears_odd_batches(method: AnyMethod, branch: AnyBranch = None) -> None:
    """All stays finite with one class in a batch, single images, and a class first seen within a task."""
    subject = _Subject(method, branch)
    singles = [Batch(b.images[:1], b.labels[:1]) for b in _stream()[:2]]
    for batches, trajectory in ((_stream(), subject.trajectory()), (singles, _run(subject.learner(), singles))):
        for batch, state in zip(batches, trajectory, strict=True):
            tensors = {path: leaf for path, leaf in state.items() if isinstance(leaf, Tensor)}
            broken = next((path for path, leaf in tensors.items() if not leaf.isfinite().all()), "")
            subject.expect(not broken, f"stay finite after labels {batch.labels.tolist()}", f"a broken {broken}")


def check_predicts_without_a_trace(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Predicting at any step gives whole score tables and leaves the trajectory as it was."""
    subject, images = _Subject(method, branch), torch.cat([batch.images for batch in _stream()])

    def look(learner: Learner) -> None:
        tables, labels = learner.scores(images), torch.as_tensor(learner.predict(images))
        stored = learner.memory.labels[: len(learner.memory)].unique()
        shape = (len(images), NUM_CLASSES)
        for name, table in tables.items():
            subject.expect(table.shape == shape, f"give a table {name!r} of shape {shape}", f"{tuple(table.shape)}")
            whole = not table.isnan().any() and bool(table[:, stored].isfinite().all())
            subject.expect(whole, f"give finite scores {name!r} of classes in memory", "others")
        chosen = tables[learner.primary].argmax(1)
        subject.expect(torch.equal(labels, chosen), f"predict by its table {learner.primary!r}", "other labels")

    looked = _run(subject.learner(), _stream()[:PREFIX], after=look)
    subject.expect_same(looked, subject.trajectory()[:PREFIX], "go on as if it had not been asked")


def check_branch_can_be_silenced(method: AnyMethod, branch: AnyBranch = None) -> None:
    """With the branch's terms times 0 it follows its own trajectory without one, to the bit.

    A branch that calls ``tap.again()`` has the method draw and its BatchNorm count once more; it cannot pass.
    """
    if branch is None:
        return
    subject, base = _Subject(method, branch), _Subject(method, None)
    learner = subject.learner()
    learner.build(SHAPE)
    calls: list[int] = []
    for peer in learner.peers:
        assert peer.branch is not None
        _silence(peer.branch, calls)
    silenced = _run(learner, _stream()[:PREFIX])
    asked = max(learner.ledger.counts.values(), default=0) * len(learner.peers)
    subject.expect(len(calls) == asked > 0, "have its branch asked in each step that trains", f"{len(calls)} calls")
    own = ("peers/*/branch/*", "generators/branch", "optimizer/*", "ledger/*")
    what = "do as without its branch when the terms weigh 0"
    subject.expect_same(silenced, base.trajectory()[:PREFIX], what, ignore=own)


def check_branch_reaches_the_network(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Gradients of the branch pass through the tap: the network learns something else than without it."""
    if branch is None:
        return
    subject, base = _Subject(method, branch), _Subject(method, None)
    ours, theirs = (one.trajectory()[-1] for one in (subject, base))
    for number in range(methods[subject.method_name].num_peers):
        differ = _difference(ours, theirs, only=f"peers/{number}/network/*")
        subject.expect(bool(differ), "learn something else with its branch", "the same network")


ALL: tuple[Callable[[AnyMethod, AnyBranch], None], ...] = (
    check_learns,
    check_resumes,
    check_follows_its_seed,
    check_keeps_to_its_memory,
    check_declares_boundaries,
    check_ignores_the_future,
    check_bears_odd_batches,
    check_predicts_without_a_trace,
    check_branch_can_be_silenced,
    check_branch_reaches_the_network,
)


def check_method(method: AnyMethod, branch: AnyBranch = None) -> None:
    """Run all checks on a method, by name or configuration, with a branch or without."""
    for check in ALL:
        check(method, branch)


# --- how a method is run --------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """What a learner holds beside its state."""

    device_labels: Tensor  # of the memory
    memory_bytes: int
    method_bytes: int  # of the method and its peers


class _Record(NamedTuple):
    """An uninterrupted run over the stream."""

    states: list[State]  # after each batch
    held: list[_Held]  # after each batch
    saved: dict[str, bytes]  # the files saved after ``PREFIX`` batches


class _Subject:
    """A method and a branch under test."""

    def __init__(self, method: AnyMethod, branch: AnyBranch) -> None:
        self.method, self.branch = method, branch
        self.method_name = methods.configure(method).name
        self.name = self.method_name if branch is None else f"{self.method_name} + {branches.configure(branch).name}"

    def learner(self, sizes: dict[str, Any] = SMALL, **options: Any) -> Learner:
        """A fresh learner."""
        method = {"name": self.method} if isinstance(self.method, str) else self.method
        if isinstance(method, dict):
            method = merge(sizes, method)
        options = {"num_classes": NUM_CLASSES, "memory_size": MEMORY_SIZE, "engine": {"device": "cpu"}, **options}
        return Learner(method, self.branch, **options)

    def record(self) -> _Record:
        """The uninterrupted run, made once for all checks."""
        return _record(json.dumps(self.learner().config.plain()))

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
            path = _difference(a, b, ignore=ignore)
            self.expect(not path, what, f"another {path} after batch {number} of {len(ours)}")


@lru_cache(maxsize=4)
def _record(config: str) -> _Record:
    learner = Learner.from_config(LearnerConfig.parse(json.loads(config)))
    record = _Record([], [], {})

    def note(learner: Learner) -> None:
        memory, method_bytes = learner.memory, _bytes([learner.method, *learner.peers], set())
        record.held.append(_Held(memory.device_labels.clone(), memory.nbytes, method_bytes))
        if learner.steps == PREFIX:
            with TemporaryDirectory() as folder:
                learner.save(folder)
                record.saved.update({file.name: file.read_bytes() for file in Path(folder).iterdir()})

    record.states.extend(_run(learner, _stream(), after=note))
    return record


def _run(
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
        states.append(_flat(learner.state_dict()))
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


def _flat(tree: Tree, where: str = "") -> State:
    """Copies of the leaves of a tree by their paths."""
    leaves: State = {}
    for key, leaf in tree.items():
        path = f"{where}/{key}".lstrip("/")
        if isinstance(leaf, dict):
            leaves |= _flat(leaf, path)
        else:
            leaves[path] = leaf.clone() if isinstance(leaf, Tensor) else copy(leaf)
    return leaves


def _difference(ours: State, theirs: State, only: str = "*", ignore: tuple[str, ...] = ()) -> str:
    """The path of the first leaf that only one has or that differs; empty if there is none."""
    paths = [path for path in ours | theirs if fnmatch(path, only) and not any(fnmatch(path, p) for p in ignore)]
    return next((p for p in paths if not (p in ours and p in theirs and _equal(ours[p], theirs[p]))), "")


def _equal(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)


def _silence(branch: Branch, calls: list[int]) -> None:
    """Multiply the branch's terms by 0, and note each time it is asked for them."""
    losses = branch.losses

    def silent(tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        calls.append(len(tap.logits))
        return {name: 0.0 * term for name, term in losses(tap, generator).items()}

    branch.losses = silent  # type: ignore[method-assign]


# --- what it learns -------------------------------------------------------------------------------------------


@cache
def _digits() -> Dataset:
    return load_digits(SHAPE[1])


def _two_digits(split: str) -> Batch:
    images, labels = (getattr(_digits(), f"{split}_{what}") for what in ("images", "labels"))
    return Batch(images[labels < 2], labels[labels < 2])


def _stream() -> list[Batch]:
    """The batches of ``LABELS``, made anew; each sample is another image."""
    digits = _digits()
    images = {label: iter(digits.train_images[digits.train_labels == label][:9]) for label in range(NUM_CLASSES)}
    return [Batch(torch.stack([next(images[y]) for y in batch]), torch.tensor(batch)) for batch in LABELS]


def _true_for_now() -> Iterator[Batch]:
    """The first batches as parts of two long arrays in which all is false but the batch at hand."""
    images, labels = (torch.cat([getattr(batch, what) for batch in _stream()]) for what in ("images", "labels"))
    false_images, false_labels = 255 - images, (labels + 1) % NUM_CLASSES
    stop = 0
    for batch in _stream()[:PREFIX]:
        start, stop = stop, stop + len(batch.labels)
        images.copy_(false_images)
        labels.copy_(false_labels)
        images[start:stop], labels[start:stop] = batch.images, batch.labels
        yield Batch(images[start:stop], labels[start:stop])


def _samples(images: Tensor, labels: Tensor) -> set[tuple[bytes, int]]:
    return {(x.numpy().tobytes(), int(y)) for x, y in zip(images, labels, strict=True)}
