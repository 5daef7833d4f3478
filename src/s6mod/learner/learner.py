"""The public object: a learner on a stream. Three verbs carry it: ``learn``, ``predict``, ``save``.

A learner joins a method, an optional branch, a replay memory and an optimiser. It decides on the host what each step
needs and hands it to the engine; it knows nothing of data sets or the command line, and of runs only where one lies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from s6mod.branch.base import BranchConfig
from s6mod.engine.average import Average
from s6mod.engine.capture import CapturedStep
from s6mod.engine.checkpoint import Snapshot, Tree
from s6mod.engine.evaluate import ENSEMBLE, TOGETHER, Predictor, Statistics, Weights, ensemble
from s6mod.engine.settings import Engine, float32_modules, ordinary_tensors
from s6mod.engine.step import Inputs, Ledger, Step
from s6mod.engine.teaching import Teaching
from s6mod.errors import ConfigError, InputError, memory_for
from s6mod.export.write import Exported
from s6mod.learner.advice import NCM, Advice
from s6mod.learner.answers import Answers, shape_of
from s6mod.learner.check import checked
from s6mod.learner.classes import Classes, Labels, Name, distinct
from s6mod.learner.config import LearnerConfig, LearnerOptions
from s6mod.learner.describe import describe
from s6mod.learner.drift import Drift
from s6mod.learner.export import export
from s6mod.learner.images import Images, as_batch, as_batch_for
from s6mod.learner.own import Factory, Own
from s6mod.learner.parts import Parts, grown, make_parts
from s6mod.learner.prequential import Prequential, Tally
from s6mod.learner.preset import composed, configured
from s6mod.learner.published import Published
from s6mod.learner.state import copied, loaded, save, state_of, take_over
from s6mod.locks import Turn, in_turn, in_turn_to_change
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, Method, MethodConfig, Peer, Plan, Task
from s6mod.random import generator

_BUILT = {field.name for field in fields(Parts)}
_VERBS = {"fit": "learn", "partial_fit": "learn", "learn_one": "learn", "predict_one": "predict", "score": "evaluate"}


class Learner(Answers):
    """Learns from a stream seen once, in small batches, with classes arriving over time.

    Examples:
        >>> learner = Learner()
        >>> learner.learn(x, y)      # images (B, C, H, W), uint8 or float in [0, 1]; labels (B,), numbers or names
        >>> learner.predict(x)       # labels (B,)

    Without ``num_classes`` it grows as classes come. With it, labels are 0 ... num_classes - 1. Without a method it
    starts from the preset ``everyday``; with one, as in ``Learner("er", "s6mod")``, from the defaults of
    ``LearnerConfig``, whose fields are the options, but that it predicts among the classes seen.
    """

    if TYPE_CHECKING:  # parts, which are there from the first batch on
        method: Method
        peers: list[Peer]
        optimizer: torch.optim.Optimizer
        memory: ReplayMemory
        host_generator: torch.Generator
        generators: dict[str, torch.Generator]
        ledger: Ledger
        average: Average[Peer] | None
        teaching: Teaching | None
        step: Step | CapturedStep

    def __init__(
        self,
        method: str | dict[str, Any] | MethodConfig | None = None,
        branch: str | dict[str, Any] | BranchConfig | None = None,
        *,
        network: nn.Module | None = None,
        optimizer: Factory | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        self._setup(configured(method, branch, options), network, optimizer)

    @classmethod
    def preset(
        cls, name: str, *, network: nn.Module | None = None, optimizer: Factory | None = None, **changes: Any
    ) -> "Learner":
        """A fresh learner by a preset, ``everyday`` or a cell as ``er+s6mod/cifar100/2000``, with changes on top.

        Changes are what a learner is made with; options of method, branch and engine are changed one by one.
        """
        return cls.from_config(composed(name, changes), network, optimizer)

    @classmethod
    def from_config(
        cls, config: LearnerConfig, network: nn.Module | None = None, optimizer: Factory | None = None
    ) -> "Learner":
        """A fresh learner from a whole configuration; ``network`` and ``optimizer``: in place of the method's."""
        learner = cls.__new__(cls)
        learner._setup(config, network, optimizer)
        return learner

    def _setup(self, config: LearnerConfig, network: nn.Module | None, optimizer: Factory | None) -> None:
        self.own = Own.taking(network, optimizer)
        config = checked(config, self.own)
        self.config = config
        self.classes = Classes(config.num_classes, distinct(config.classes or ()))
        self.engine = Engine.resolve(config.engine)
        self.task = Task()
        self.steps = 0  # batches learned
        self.evaluated: tuple[float, int, int] | None = None  # percent, on so many images, after so many batches
        self.image_shape: tuple[int, int, int] | None = None
        self._quiet = 0  # batches since the last new class
        self._advice = Advice()
        self._predictors: dict[tuple[Weights, Statistics], Predictor] = {}  # of the present moment
        self.published: Published | None = None  # the latest
        self._tally = Tally()
        self._drift = Drift() if config.boundaries == "drift" else None
        self.turn = Turn()
        self.parts: Parts | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            parts = self.__dict__.get("parts")
            if name in _BUILT and parts is not None:
                return getattr(parts, name)
            hint = " before its first batch; call learn() or build() first" if name in _BUILT else ""
            if name in _VERBS:
                hint = f"; call {_VERBS[name]}(), or see s6mod.interfaces for scikit-learn and river"
            raise AttributeError(f"a Learner has no {name!r}{hint}")

    def build(self, image_shape: tuple[int, int, int]) -> None:
        """Make all that depends on the image shape; the first ``learn`` does so if nobody did before."""
        if image_shape[0] != 3:
            raise InputError(
                f"expected the shape of images in RGB, (3, H, W), got {image_shape}; grey ones are repeated to three"
            )
        self._build(image_shape, self.classes.capacity)

    @ordinary_tensors()
    @float32_modules()
    def _build(self, image_shape: tuple[int, int, int], capacity: int) -> None:
        with memory_for("the learner", "lower memory_size, the width of the network or num_classes"):
            self.parts = make_parts(self.config, self.engine, image_shape, capacity, self.own)
        self.image_shape = image_shape

    @ordinary_tensors()
    @float32_modules()
    def _grow(self, parts: Parts, capacity: int) -> None:
        with memory_for(f"{capacity:,} classes", "lower memory_size or the width of the network"):
            self.parts = grown(parts, self.config, self.engine, capacity)

    @property
    def classes_(self) -> list[Name]:
        """The labels of the classes that came, in order of their first appearance; those announced come before."""
        return list(self.task.seen if self.classes.fixed is not None else self.classes.names)

    # --- learning ---------------------------------------------------------------------------------------------

    @in_turn_to_change
    @ordinary_tensors()
    def learn(self, x: Images, y: Labels) -> None:
        """Learn one batch of the stream, then store what the reservoir keeps of it."""
        images = as_batch_for(x, y)
        labels, classes = self.classes.taking(y, len(images))
        first = self.image_shape is None
        if first:
            self._build(shape_of(images), classes.capacity)
        self._check_shape(images)
        tested = self._tested(images) if self.config.tests and self.steps > 0 else None
        drift = self._drift
        if drift is not None and tested is not None:
            drift = drift.after((tested.argmax(1) != labels).int().tolist())
        before, stored = (self.parts, self.task, self._quiet), self.memory.seen
        try:
            if self.parts is not None and classes.capacity > self.parts.capacity:
                self._grow(self.parts, classes.capacity)
            with memory_for(f"a batch of {len(images):,} images", "give smaller batches"):
                self._learn(images, labels, drift is not None and drift.rose)
        except BaseException:
            if first:  # the next one may have another shape
                self.image_shape = self.parts = None
            elif self.memory.seen > stored:  # an interrupt found the batch stored: its labels have their names
                self.classes = classes
            elif self.parts is not before[0]:  # it grew for nothing
                self.parts, self.task, self._quiet = before
            raise
        self._drift = drift
        self.classes = classes
        if tested is not None:
            self._tally.count(labels, tested)
        if self.config.publishes and (self.published is None or self.published.is_old(self)):
            self._publish()

    def _tested(self, images: Tensor) -> Tensor:
        """The scores by which a batch is predicted before it is learned, (N, classes)."""
        return self._tables_now(images, self.primary)[self.primary].cpu()

    def _learn(self, images: Tensor, labels: Tensor, drifted: bool) -> None:
        # A device reads pinned memory when it gets there, and its owner may have filled it anew by then.
        images, labels = (given.clone() if given.is_pinned() else given for given in (images, labels))

        task = self.task.with_classes(labels)
        arrived = len(task.seen) > len(self.task.seen)
        new = self.config.boundaries == "on_new_class" and arrived and self._quiet >= self.config.boundary_patience
        if new or (drifted and self.task.step > 0):
            self._pass_boundary()
            task, self._quiet = self.task.with_classes(labels), 0
        self._predictors = {}
        for _ in range(self.config.updates - 1):  # these store nothing: the batch is no part of the memory yet
            plan = self.method.plan(labels, self.memory, task, self.host_generator)
            if plan is not None:
                nowhere = torch.full((len(labels),), self.memory.size)
                self.ledger.count(self.step(Inputs(Batch(images, labels), plan, nowhere)))
        plan = self.method.plan(labels, self.memory, task, self.host_generator)
        with self.memory.placing(images, labels, task.index, self.host_generator) as slots:
            inputs = Inputs(Batch(images, labels), plan or Plan({}), slots)
            if plan is None:
                self.memory.store(slots, images, labels)
            else:
                self.ledger.count(self.step(inputs))
        self.steps += 1
        task.step += 1
        self.task, self._quiet = task, 0 if arrived else self._quiet + 1

    @in_turn_to_change
    @ordinary_tensors()
    def end_task(self) -> None:
        """Tell the learner that a task ended. Only with ``boundaries='given'`` does it mean anything."""
        if self.config.boundaries == "given":
            self._pass_boundary()

    def _pass_boundary(self) -> None:
        if self.task.step == 0:
            raise InputError("expected learn() before end_task(), got a task without a batch; learn first")
        self.method.end_task(self.peers)
        self._predictors = {}  # a method may have changed its networks
        self.task = Task(self.task.index + 1, 0, self.task.seen, [])

    @in_turn
    def losses(self) -> dict[str, float]:
        """Mean of each loss term since this was last called (waits for the device)."""
        return self.ledger.read() if self.image_shape is not None else {}

    @in_turn
    def figures(self) -> dict[str, Tensor]:
        """What the branches say about themselves in their latest step, on the host."""
        found: dict[str, Tensor] = {}
        for number, peer in enumerate([] if self.image_shape is None else self.peers, start=1):
            if peer.branch is not None:
                prefix = f"net{number}/" if len(self.peers) > 1 else ""
                found |= {prefix + name: value.detach().cpu() for name, value in peer.branch.figures().items()}
        return found

    # --- predicting -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe(self)

    @property
    def primary(self) -> str:
        """The name of the score table that predicts."""
        return self.config.primary

    def evaluate(self, x: Images, y: Labels) -> float:
        """The share of images whose label is predicted, in percent.

        Warns, once, where nearest means have far more: now and then it looks at them too.
        """
        y = list(y) if isinstance(y, Iterator) else y  # it is read twice
        images = as_batch_for(x, y)
        accuracy = super().evaluate(images, y)
        self.evaluated = accuracy, len(images), self.steps
        if self.primary != NCM and NCM in self.config.tables and self._advice.due(self.steps):
            tables = self.scores(images)
            self._advice.look(tables, self.primary, self.classes.numbers(y, len(tables[NCM])))
        return accuracy

    @in_turn
    def scores_by_all(self, x: Images) -> dict[str, Tensor]:
        """The score tables of everything that could predict, by ``weights/statistics/scores``, the ensemble included.

        There is one pass over the images for each choice of weights and statistics.
        """
        images, _ = as_batch(x)
        found: dict[str, Tensor] = {}
        for weights, statistics in product(self.config.all_weights, get_args(Statistics)):
            tables = self._tables(images, None, weights, statistics)
            if tables.keys() & set(TOGETHER):  # a method of one's own may have other tables alone
                tables[ENSEMBLE] = ensemble(tables)
            found |= {f"{weights}/{statistics}/{name}": table for name, table in tables.items()}
        return found

    @in_turn
    @ordinary_tensors()
    def _tables(
        self,
        images: Tensor,
        only: str | None = None,
        weights: Weights | None = None,
        statistics: Statistics | None = None,
    ) -> dict[str, Tensor]:
        return self._tables_now(images, only, weights, statistics)

    def _tables_now(
        self,
        images: Tensor,
        only: str | None,
        weights: Weights | None = None,
        statistics: Statistics | None = None,
    ) -> dict[str, Tensor]:
        self._check_learned()
        self._check_shape(images)
        predictor = self._present(weights or self.config.weights, statistics or self.config.statistics)
        return self._named(predictor(images.to(self.engine.device), only))

    def _check_learned(self) -> None:
        if self.steps == 0:
            raise InputError("expected learn() before predict(), got a learner that has seen nothing; learn first")

    def _present(self, weights: Weights, statistics: Statistics) -> Predictor:
        """What predicts at the present moment, made once."""
        choice = weights, statistics
        if choice not in self._predictors:
            self._predictors[choice] = self.predictor(*choice)
        return self._predictors[choice]

    @property
    def _asked(self) -> Answers:
        published = self.published
        return self if not self.config.publishes or published is None else published

    @in_turn
    def publish(self) -> Published:
        """A copy of what predicts now, for other threads, which ``published`` gives from now on.

        It never changes, and whoever asks it waits for no step.
        """
        return self._publish()

    @ordinary_tensors()
    def _publish(self) -> Published:
        self._check_learned()
        self.published = Published(self)
        return self.published

    @property
    def temperature(self) -> float:
        """By what scores are divided for probabilities: fitted on the stream with ``test_then_train``, else 1."""
        return self._tally.temperature.value

    @property
    @in_turn
    def prequential(self) -> Prequential:
        """How well the images of the stream were predicted just before they were learned."""
        if not self.config.tests:
            raise ConfigError(
                "expected a learner that tests each batch before it learns it, got one that does not; "
                "make it with test_then_train=True"
            )
        return self._tally.told(self.classes)

    def predictor(self, weights: Weights | None = None, statistics: Statistics | None = None) -> Predictor:
        """What predicts, from the learner as it is now; unless told, by the weights and statistics of its choice."""
        peers, weights = self.peers, weights or self.config.weights
        if weights == "mean":
            if self.teaching is None:
                raise ConfigError("expected a learner with a teacher, got one without; make it with teacher='mkd'")
            peers = self.teaching.mean(peers)
        if weights == "averaged":
            if self.average is None:
                raise ConfigError(
                    "expected a learner with averaged weights, got one without; make it with average=0.99"
                )
            peers = self.average.modules
        random = generator(self.config.seed, f"asked after {self.steps} batches", self.engine.device)
        with ordinary_tensors(), self.engine.twins(), self.engine.autocast():
            peers = self.method.ask(peers, self.memory, random)
        classes = self.task.seen if self.config.among_seen else None
        return Predictor(self.method, peers, self.memory, self.engine, statistics or self.config.statistics, classes)

    def export(self, path: str | Path, classes: Sequence[str] | None = None) -> Exported:
        """Write what predicts to ``path``, replacing it: ONNX for ``.onnx``, ``torch.export`` for ``.pt2``.

        It takes uint8 images (N, 3, H, W), any number of them, and gives labels, probabilities and scores, in float32
        on a CPU. ``classes``: names for the labels in place of the learner's own. The learner stays as it is.
        """
        return export(self, path, classes)

    # --- state ------------------------------------------------------------------------------------------------

    @property
    @in_turn
    def nbytes(self) -> int:
        """Bytes held between steps: networks, branches, teachers, averages, optimiser, memory, what is published."""
        if self.parts is None:
            return 0
        published = 0 if self.published is None else self.published.nbytes
        return self.parts.nbytes + published + self.own.nbytes

    @in_turn
    def state_dict(self) -> Tree:
        """Everything that changes, as a tree of tensors and plain values."""
        return state_of(self)

    @in_turn_to_change
    @ordinary_tensors()
    def load_state_dict(self, state: Tree, image_shape: tuple[int, int, int] | None = None) -> None:
        """Take over a state of a learner with the same configuration; older ones do not tell ``image_shape``."""
        self._predictors, self.published = {}, None
        take_over(self, state, image_shape)
        if self.config.publishes and self.steps > 0 and self.parts is not None:
            self._publish()

    def save(self, folder: str | Path) -> None:
        """Save everything into a folder; ``Learner.load`` goes on from there as if nothing had happened."""
        save(self, folder)

    @in_turn
    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self.state_dict(), {"kind": "learner", "config": self.config.plain()})

    def __reduce__(self) -> tuple[Any, ...]:
        """What is copied or pickled is the learner at one moment, whatever other threads do with it."""
        # As bytes: multiprocessing shares a tensor by a file, which is closed before a spawned process could open it.
        now = self._snapshot()
        return copied, (type(self), self.config, now.plain, save_tensors(now.tensors), self.own)

    @classmethod
    @ordinary_tensors()
    def load(
        cls,
        folder: str | Path,
        device: str | torch.device | None = None,
        *,
        network: nn.Module | None = None,
        optimizer: Factory | None = None,
    ) -> "Learner":
        """A saved learner, or that of a run's folder; ``device`` moves it elsewhere than where it was saved.

        One that was made with a ``network`` needs it again: a module of the same tensors, whatever they hold. So does
        one that was made with an ``optimizer``: a function that makes the same.
        From a CPU to a GPU or back, it goes on with fresh draws: their generators share no state.
        """
        return loaded(cls, folder, device, Own.taking(network, optimizer))
