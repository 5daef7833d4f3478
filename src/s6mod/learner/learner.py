"""The public object: a learner on a stream. Three verbs carry it: ``learn``, ``predict``, ``save``.

A learner joins a method, an optional branch, a replay memory and an optimiser. It decides on the host what each step
needs and hands it to the engine; it knows nothing of data sets or the command line, and of runs only where one lies.
"""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from s6mod.branch import branches
from s6mod.branch.base import BranchConfig
from s6mod.config import Config, merge
from s6mod.data.arrays import as_labels, as_uint8_images
from s6mod.engine.average import Average, average_of
from s6mod.engine.capture import CapturedStep
from s6mod.engine.checkpoint import Snapshot, Tree, fitting, read_state
from s6mod.engine.evaluate import ENSEMBLE, TOGETHER, Predictor, Statistics, Weights, ensemble
from s6mod.engine.settings import Engine, MissingDeviceError, float32_modules, ordinary_tensors
from s6mod.engine.step import Inputs, Ledger, Step, load_optimizer_state, make_optimizer, optimizer_state
from s6mod.errors import CheckpointError, ConfigError, InputError, memory_for
from s6mod.files import usable
from s6mod.learner.advice import NCM, Advice
from s6mod.learner.config import LearnerConfig, LearnerOptions
from s6mod.learner.peer import make_peer
from s6mod.learner.preset import EVERYDAY, composed
from s6mod.locks import Turn, in_turn, in_turn_to_change
from s6mod.memory import ReplayMemory
from s6mod.methods import Batch, Method, MethodConfig, Peer, Plan, Task, methods
from s6mod.random import derive_seed, generator, set_state
from s6mod.run_files import RunFiles

Images = Tensor | NDArray[np.uint8] | NDArray[np.floating[Any]]
Labels = Tensor | NDArray[np.integer[Any]] | list[int]
_BUILT = {"method", "peers", "optimizer", "memory", "host_generator", "generators", "ledger", "average", "step"}


class _Where(Config):
    """A ``Task`` as it is saved."""

    index: int = Field(ge=0)
    step: int = Field(ge=0)
    seen: list[int]
    current: list[int]


class _Host(Config):
    """What the host knows, as it is saved: a state that was edited may hold anything."""

    task: _Where
    steps: int = Field(ge=0)
    quiet: int = Field(ge=0)
    image_shape: list[int] | None = Field(None, min_length=3, max_length=3)


class Learner:
    """Learns from a stream seen once, in small batches, with classes arriving over time.

    >>> learner = Learner(num_classes=10)
    >>> learner.learn(x, y)          # images (B, C, H, W), uint8 or float in [0, 1]; labels (B,)
    >>> learner.predict(x)           # labels (B,)

    Without a method it starts from the preset ``everyday``, with one, as in ``Learner("er", "s6mod", num_classes=10)``,
    from the defaults of ``LearnerConfig``, whose fields are the options.
    """

    def __init__(
        self,
        method: str | dict[str, Any] | MethodConfig | None = None,
        branch: str | dict[str, Any] | BranchConfig | None = None,
        **options: Unpack[LearnerOptions],
    ) -> None:
        given = {name: _plain(value) for name, value in options.items() if name != "engine" or value is not None}
        if branch is not None:
            given["branch"] = _plain(branches.configure(branch))
        if method is None:
            config = composed(EVERYDAY, given)
        else:
            config = LearnerConfig.parse(given | {"method": _plain(methods.configure(method))})
        self._setup(config)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "Learner":
        """A fresh learner by a preset, ``everyday`` or a cell as ``er+s6mod/cifar100/2000``, with changes on top.

        Changes are what a learner is made with; options of method, branch and engine are changed one by one.
        """
        return cls.from_config(composed(name, changes))

    @classmethod
    def from_config(cls, config: LearnerConfig) -> "Learner":
        """A fresh learner from a whole configuration."""
        learner = cls.__new__(cls)
        learner._setup(config)
        return learner

    def _setup(self, config: LearnerConfig) -> None:
        kind = methods[config.method.name]
        if kind.needs_boundaries and config.boundaries == "none":
            raise ConfigError(
                f"expected task boundaries for method {config.method.name!r}, which uses them, got boundaries='none'; "
                "use 'given' and call end_task(), or 'on_new_class'"
            )
        if config.branch is not None:
            if not kind.has_logits:
                raise ConfigError(
                    f"expected no branch on method {config.method.name!r}, which has no logits for one to read, "
                    f"got {config.branch.name!r}; leave the branch out or take another method"
                )
            branches[config.branch.name].check(config.branch, config.num_classes)
        if config.predict_by not in ("auto", *config.tables):
            raise ConfigError(
                f"expected predict_by to name a score table of the method and its branch, got {config.predict_by!r}; "
                f"choose one of {', '.join(config.tables)}"
            )
        self.config = config
        self.engine = Engine.resolve(config.engine)
        self.task = Task()
        self.steps = 0  # batches learned
        self.image_shape: tuple[int, int, int] | None = None
        self._quiet = 0  # batches since the last new class
        self._advice = Advice()
        self._predictors: dict[tuple[Weights, Statistics], Predictor] = {}  # of the present moment
        self.turn = Turn()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = " before its first batch; call learn() or build() first" if name in _BUILT else ""
            raise AttributeError(f"a Learner has no {name!r}{hint}")

    @ordinary_tensors()
    @float32_modules()
    def build(self, image_shape: tuple[int, int, int]) -> None:
        """Make all that depends on the image shape; the first ``learn`` does so if nobody did before.

        Each part draws its initial values from a seed of its own.
        """
        with memory_for("the learner", "lower memory_size, the width of the network or num_classes"):
            self._build(image_shape)

    def _build(self, image_shape: tuple[int, int, int]) -> None:
        config, device = self.config, self.engine.device
        kind = methods[config.method.name]
        self.method: Method = kind(config.method, image_shape, config.num_classes).to(device)
        self.peers = [make_peer(config, self.method, self.engine, number) for number in range(self.method.num_peers)]
        self.optimizer = make_optimizer(config.method.optimizer, self.peers, device)
        values = self.method.values()
        self.memory = ReplayMemory(config.memory_size, image_shape, self.method.reservoir, device, values)
        self.host_generator = generator(config.seed, "host")
        self.generators = {name: generator(config.seed, name, device) for name in ("method", "branch")}
        self.ledger = Ledger()
        self.average: Average[Peer] | None = None if config.average is None else average_of(self.peers, config.average)
        step = Step(
            self.method,
            self.peers,
            self.optimizer,
            self.memory,
            self.generators,
            self.engine,
            self.ledger,
            self.average,
        )
        self.step = CapturedStep(step) if self.engine.capture else step
        self.image_shape = image_shape

    # --- learning ---------------------------------------------------------------------------------------------

    @in_turn_to_change
    @ordinary_tensors()
    def learn(self, x: Images, y: Labels) -> None:
        """Learn one batch of the stream, then store what the reservoir keeps of it."""
        images = as_uint8_images(x)
        labels = as_labels(y, self.config.num_classes, len(images))
        first = self.image_shape is None
        if first:
            self.build(_shape(images))
        self._check_shape(images)
        try:
            self._learn(images, labels)
        except BaseException:
            if first:  # the next one may have another shape
                self.image_shape = None
            raise

    def _learn(self, images: Tensor, labels: Tensor) -> None:
        # A device reads pinned memory when it gets there, and its owner may have filled it anew by then.
        images, labels = (given.clone() if given.is_pinned() else given for given in (images, labels))

        task = self.task.with_classes(labels)
        arrived = len(task.seen) > len(self.task.seen)
        if self.config.boundaries == "on_new_class" and arrived and self._quiet >= self.config.boundary_patience:
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

    @overload
    def predict(self, x: Tensor) -> Tensor: ...

    @overload
    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]: ...

    def predict(self, x: Images) -> Tensor | NDArray[np.int64]:
        """Labels (B,) of the primary score table; NumPy in, NumPy out."""
        labels = self._chosen(x).argmax(1).cpu()
        return cast(NDArray[np.int64], labels.numpy()) if isinstance(x, np.ndarray) else labels

    @overload
    def predict_proba(self, x: Tensor) -> Tensor: ...

    @overload
    def predict_proba(self, x: NDArray[Any]) -> NDArray[np.float32]: ...

    def predict_proba(self, x: Images) -> Tensor | NDArray[np.float32]:
        """The softmax of the primary score table over its candidate classes, 0 elsewhere: (B, num_classes).

        It is not calibrated: scores of most tables are no log-probabilities. NumPy in, NumPy out.
        """
        shares = self._chosen(x).softmax(1).cpu()
        return cast(NDArray[np.float32], shares.numpy()) if isinstance(x, np.ndarray) else shares

    def evaluate(self, x: Images, y: Labels) -> float:
        """The share of images whose label is predicted, in percent.

        Warns, once, where nearest means have far more: now and then it looks at them too.
        """
        looks = self.primary != NCM and NCM in self.config.tables and self._advice.due(self.steps)
        tables = self.scores(x) if looks else {self.primary: self._chosen(x)}
        guesses = tables[self.primary].argmax(1).cpu()
        labels = as_labels(y, self.config.num_classes, len(guesses))
        if looks:
            self._advice.look(tables, self.primary, labels)
        return 100 * (guesses == labels).sum().item() / len(labels)

    @property
    def primary(self) -> str:
        """The name of the score table that predicts."""
        return self.config.primary

    def scores(self, x: Images) -> dict[str, Tensor]:
        """All score tables (B, num_classes) by name: the head, the nearest class mean, the branch's head, ..."""
        tables = self._predict(x)
        return tables | {ENSEMBLE: ensemble(tables)} if self.primary == ENSEMBLE else tables

    @in_turn
    def scores_by_all(self, x: Images) -> dict[str, Tensor]:
        """The score tables of everything that could predict, by ``weights/statistics/scores``, the ensemble included.

        There is one pass over the images for each choice of weights and statistics.
        """
        found: dict[str, Tensor] = {}
        for weights, statistics in product(get_args(Weights), get_args(Statistics)):
            if weights == "averaged" and self.config.average is None:
                continue
            tables = self._predict(x, None, weights, statistics)
            if tables.keys() & set(TOGETHER):  # a method of one's own may have other tables alone
                tables[ENSEMBLE] = ensemble(tables)
            found |= {f"{weights}/{statistics}/{name}": table for name, table in tables.items()}
        return found

    def _chosen(self, x: Images) -> Tensor:
        return self._predict(x, self.primary)[self.primary]

    @in_turn
    @ordinary_tensors()
    def _predict(
        self,
        x: Images,
        only: str | None = None,
        weights: Weights | None = None,
        statistics: Statistics | None = None,
    ) -> dict[str, Tensor]:
        if self.steps == 0:
            raise InputError("expected learn() before predict(), got a learner that has seen nothing; learn first")
        images = as_uint8_images(x)
        self._check_shape(images)
        choice = (weights or self.config.weights, statistics or self.config.statistics)
        if choice not in self._predictors:
            self._predictors[choice] = self.predictor(*choice)
        return self._predictors[choice](images.to(self.engine.device), only)

    def predictor(self, weights: Weights | None = None, statistics: Statistics | None = None) -> Predictor:
        """What predicts, from the learner as it is now; unless told, by the weights and statistics of its choice."""
        peers = self.peers
        if (weights or self.config.weights) == "averaged":
            if self.average is None:
                raise ConfigError(
                    "expected a learner with averaged weights, got one without; make it with average=0.99"
                )
            peers = self.average.modules
        classes = self.task.seen if self.config.predict_among == "seen" else None
        return Predictor(self.method, peers, self.memory, self.engine, statistics or self.config.statistics, classes)

    def _check_shape(self, images: Tensor) -> None:
        if _shape(images) != self.image_shape:
            raise InputError(
                f"expected images of shape {self.image_shape} as in the first batch, got {_shape(images)}; resize them"
            )

    # --- state ------------------------------------------------------------------------------------------------

    @property
    @in_turn
    def nbytes(self) -> int:
        """Bytes held between steps: networks, branches, teachers, averages, optimiser, memory."""
        if self.image_shape is None:
            return 0
        tensors = [t for part in (*self.peers, self.method) for t in (*part.parameters(), *part.buffers())]
        tensors += [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        averaged = 0 if self.average is None else self.average.nbytes
        return self.memory.nbytes + averaged + sum(t.numel() * t.element_size() for t in tensors)

    @property
    def _all_generators(self) -> dict[str, torch.Generator]:
        return {"host": self.host_generator, **self.generators}

    @in_turn
    def state_dict(self) -> Tree:
        """Everything that changes, as a tree of tensors and plain values."""
        host: Tree = {"task": vars(self.task), "steps": self.steps, "quiet": self._quiet, "image_shape": None}
        if self.image_shape is None:
            return {"host": host}
        host["image_shape"] = list(self.image_shape)
        return {
            "host": host,
            "method": self.method.state_dict(),
            "peers": {str(n): peer.state_tree() for n, peer in enumerate(self.peers)},
            "optimizer": optimizer_state(self.optimizer, self.peers),
            "memory": self.memory.state_dict(),
            "generators": {name: g.get_state() for name, g in self._all_generators.items()},
            "ledger": self.ledger.state_dict(),
            **({} if self.average is None else {"average": self.average.state_tree()}),
        }

    @in_turn_to_change
    @ordinary_tensors()
    def load_state_dict(self, state: Tree, image_shape: tuple[int, int, int] | None = None) -> None:
        """Take over a state of a learner with the same configuration; older ones do not tell ``image_shape``."""
        host = state["host"]
        _Host.model_validate(host)
        self.task, self.steps, self._quiet = Task(**host["task"]), host["steps"], host["quiet"]
        self._predictors = {}
        shape = host.get("image_shape", image_shape)
        if shape is None:
            return
        self.build(tuple(shape))
        self.method.load_state_dict(state["method"])
        for number, peer in enumerate(self.peers):
            peer.load_state_tree(state["peers"][str(number)])
        load_optimizer_state(self.optimizer, self.peers, state["optimizer"])
        self.memory.load_state_dict(state["memory"])
        if not ((self.memory.labels >= -1) & (self.memory.labels < self.config.num_classes)).all():
            raise ValueError("labels of the memory beyond num_classes")
        for name, g in self._all_generators.items():
            set_state(g, state["generators"][name], derive_seed(self.config.seed, f"{name} from step {self.steps}"))
        self.ledger.load_state_dict(state["ledger"], self.engine.device)
        if self.average is not None:
            self.average.load_state_tree(state["average"])

    def save(self, folder: str | Path) -> None:
        """Save everything into a folder; ``Learner.load`` goes on from there as if nothing had happened."""
        folder = usable(folder)
        around = RunFiles(folder.parent)
        run = around if folder == around.checkpoint else RunFiles(folder)
        if run.config.exists() and run.stream.exists():
            raise CheckpointError(
                f"expected a folder of its own for a learner, got {folder}, which belongs to a run; choose another"
            )
        self._snapshot().write(folder)

    @in_turn
    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self.state_dict(), {"kind": "learner", "config": self.config.plain()})

    def __reduce__(self) -> tuple[Any, ...]:
        """What is copied or pickled is the learner at one moment, whatever other threads do with it."""
        return _copy, (type(self), self.config, self._snapshot())

    @classmethod
    @ordinary_tensors()
    def load(cls, folder: str | Path, device: str | torch.device | None = None) -> "Learner":
        """A saved learner, or that of a run's folder; ``device`` moves it elsewhere than where it was saved.

        From a CPU to a GPU or back, it goes on with fresh draws: their generators share no state.
        """
        inside = RunFiles(usable(folder)).checkpoint
        state, header = read_state(inside if inside.is_dir() else Path(folder))
        with fitting(Path(folder)):
            return cls._restored(folder, state, header, device)

    @classmethod
    def _restored(
        cls, folder: str | Path, state: Tree, header: dict[str, Any], device: str | torch.device | None
    ) -> "Learner":
        if "config" not in header:
            raise CheckpointError(
                f"expected a saved learner or run in {folder}, got a run of an older version; run it again"
            )
        if header["kind"] == "run":
            state = state["learner"]
        elsewhere = {} if device is None else {"engine": {"device": str(device)}}
        config = LearnerConfig.parse(merge(header["config"], elsewhere))
        try:
            learner = cls.from_config(config)
        except MissingDeviceError:
            raise MissingDeviceError(
                f"expected {config.engine.device} for the learner in {folder}, got a machine without it; "
                f"use Learner.load({str(folder)!r}, device='cpu')"
            ) from None
        learner.load_state_dict(state, header.get("image_shape"))  # an older version told it there
        return learner


def _copy(kind: type[Learner], config: LearnerConfig, snapshot: Snapshot) -> Learner:
    learner = kind.from_config(config)
    learner.load_state_dict(snapshot.tree())
    return learner


def _plain(values: Any) -> Any:
    return values.plain() if isinstance(values, Config) else values


def _shape(images: Tensor) -> tuple[int, int, int]:
    channels, height, width = images.shape[1:]
    return channels, height, width
