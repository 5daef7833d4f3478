"""The run loop: one learner, one stream, one folder.

The folder holds the configuration, the stream plan, the records (JSON lines), the latest checkpoint and, at the end,
the result. A run stopped at any step, by a signal or by force, goes on from its checkpoint to the same bits.
"""

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from pydantic import Field
from torch import Tensor

from s6mod.config import Config, digest
from s6mod.data import DataConfig, Dataset, load
from s6mod.data.streams import StreamConfig, StreamPlan, make_plan
from s6mod.engine.checkpoint import read_state, write_aside, write_state
from s6mod.engine.environment import describe, differences
from s6mod.errors import CheckpointError, ConfigError, S6modError
from s6mod.learner import Learner, LearnerConfig
from s6mod.metrics import AccuracyMatrix, Metrics

RESULT_FORMAT = 1


class OutputConfig(Config):
    """What is written and how often; none of it changes what is learned."""

    log_every: int = Field(50, ge=1, description="steps between two records of loss terms and branch figures")
    checkpoint_every: int = Field(1000, ge=1, description="steps between two checkpoints")
    eval_every: int | None = Field(
        None, ge=1, description="steps between evaluations within a task; none: at task ends only"
    )
    keep_checkpoint: bool = Field(True, description="keep the final state beside the result")


class RunConfig(LearnerConfig):
    """A learner's configuration with the data, the stream and the output."""

    num_classes: int | None = Field(None, ge=2, description="capacity; none: as many classes as the data set has")  # type: ignore[assignment]
    data: DataConfig = DataConfig()
    stream: StreamConfig = StreamConfig()
    output: OutputConfig = OutputConfig()

    @property
    def hash(self) -> str:
        """Names the run: everything that can change its result, and nothing else."""
        values = self.plain()
        del values["output"]
        del values["engine"]["device"], values["engine"]["capture"], values["engine"]["eval_batch"]
        del values["data"]["root"]
        return digest(values)

    @property
    def cell(self) -> str:
        """The experiment without its seed: method[+branch]/data/memory."""
        branch = f"+{self.branch.name}" if self.branch else ""
        return f"{self.method.name}{branch}/{self.data.name}/{self.memory_size}"

    @property
    def folder_name(self) -> str:
        """A folder name that a person can read and that no two different runs share."""
        return f"{self.cell.replace('/', '-')}-seed{self.seed}-{self.hash}"

    def learner_config(self, dataset: Dataset) -> LearnerConfig:
        """The learner's part, with the capacity filled in."""
        if self.num_classes is not None and self.num_classes < dataset.num_classes:
            raise ConfigError(
                f"expected num_classes of at least {dataset.num_classes}, which {dataset.name} has, "
                f"got {self.num_classes}; raise it or leave it out"
            )
        values = {name: value for name, value in self.plain().items() if name in LearnerConfig.model_fields}
        return LearnerConfig.parse(values | {"num_classes": self.num_classes or dataset.num_classes})


class Interrupted(S6modError):  # noqa: N818 - it is a request, not a fault
    """The run was asked to stop and has saved its state."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; go on with: s6mod train --resume {folder}")
        self.exit_code = 128 + number


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a display."""

    step: int
    steps: int
    task: int
    tasks: int
    samples_per_second: float
    terms: dict[str, float]
    accuracy: float | None  # mean over the tasks seen, at the latest evaluation


class Watcher(Protocol):
    """Whoever wants to see a run go on."""

    def __call__(self, progress: Progress) -> None:
        """Called at each record."""


@dataclass
class Cursor:
    """The run's own state, beside the learner's."""

    position: int = 0  # batches learned
    rows: dict[str, list[list[float]]] = field(default_factory=dict)  # accuracy per table, after each task
    seconds: float = 0.0  # spent in training steps
    eval_seconds: float = 0.0


class Run:
    """One run in one folder."""

    def __init__(
        self, config: RunConfig, folder: Path, dataset: Dataset | None = None, watch: Watcher | None = None
    ) -> None:
        self.config, self.folder, self.watch = config, folder, watch
        data = dataset if dataset is not None else load(config.data.name, config.data.root)
        self.learner = Learner.from_config(config.learner_config(data))
        self.learner.build(data.image_shape)  # what cannot be built is refused before a folder is made
        self.dataset = data.to(self.learner.engine.device)
        self.plan = make_plan(data.train_labels, data.num_classes, config.stream, config.seed)
        self.cursor = Cursor()
        self.environment = describe(self.learner.engine.device)
        self._stop: int | None = None
        self._accuracy: float | None = None
        self._terms: dict[str, float] = {}
        self._test_rows = [_rows_of(data.test_labels, classes) for classes in self.plan.task_classes]

    # --- life of a run ----------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Begin in a new folder and run to the end."""
        if (self.folder / "config.json").exists():
            raise ConfigError(
                f"expected a folder without a run, got {self.folder}, which has one; "
                "go on with --resume or choose another --out"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plan.save(self.folder / "stream.safetensors")
        content = {"hash": self.config.hash, "config": self.config.plain(), "environment": self.environment}
        write_aside(self.folder / "config.json", json.dumps(content, indent=1).encode())
        return self._go_on()

    @classmethod
    def resume(cls, folder: Path, dataset: Dataset | None = None, watch: Watcher | None = None) -> "Run":
        """A run as its folder left it; ``finish`` goes on to the end."""
        config = read_run_config(folder)
        run = cls(config, folder, dataset, watch)
        if run.plan.hash != StreamPlan.load(folder / "stream.safetensors").hash:
            raise CheckpointError(
                f"expected the stream that {folder} was begun on, got other data; give the same data set"
            )
        if (folder / "checkpoint" / "state.json").exists():
            run._restore()
        return run

    def finish(self) -> dict[str, Any]:
        """Go on to the end (at once if it is there already) and return the result."""
        done = self.folder / "result.json"
        if done.exists():
            return dict(json.loads(done.read_text()))
        return self._go_on()

    def _restore(self) -> None:
        state, header = read_state(self.folder / "checkpoint")
        if header["hash"] != self.config.hash:
            raise CheckpointError(
                f"expected a checkpoint of run {self.config.hash}, got one of {header['hash']} in {self.folder}; "
                "restore the right one"
            )
        if changed := differences(header["environment"], self.environment):
            warnings.warn(f"resuming where results may differ in the last bits: {'; '.join(changed)}", stacklevel=3)
        shape = header["image_shape"]
        self.learner.load_state_dict(state["learner"], None if shape is None else tuple(shape))
        self.cursor = Cursor(**state["cursor"])
        records = self.folder / "records.jsonl"
        if not records.exists() or records.stat().st_size < state["records_bytes"]:
            raise CheckpointError(
                f"expected at least {state['records_bytes']} bytes in {records}, got fewer; restore the file"
            )
        os.truncate(records, state["records_bytes"])

    def _go_on(self) -> dict[str, Any]:
        if self.cursor.position == 0:
            (self.folder / "records.jsonl").write_bytes(b"")
        with self._stopping_politely():
            for position, ids, task, is_last in self.plan.batches(self.cursor.position):
                self._learn(ids)
                if is_last:
                    self._end_task(task)
                elif _due(position, self.config.output.eval_every):
                    self._record({"kind": "evaluation", "task": task, "accuracy": self._evaluate(task)})
                if _due(position, self.config.output.log_every) or is_last:
                    self._log(task)
                if self._stop is not None or _due(position, self.config.output.checkpoint_every):
                    self._checkpoint()
                if self._stop is not None:
                    raise Interrupted(self.folder, self._stop)
        return self._conclude()

    # --- parts of a step --------------------------------------------------------------------------------------

    def _learn(self, ids: Tensor) -> None:
        begin = time.perf_counter()
        rows = ids.to(self.dataset.train_images.device, non_blocking=True)
        self.learner.learn(self.dataset.train_images[rows], self.dataset.train_labels[ids])
        self.cursor.position += 1
        self.cursor.seconds += time.perf_counter() - begin

    def _end_task(self, task: int) -> None:
        self.learner.end_task()
        row = self._evaluate(task)
        for name, accuracies in row.items():
            self.cursor.rows.setdefault(name, []).append(accuracies)
        self._record({"kind": "task", "task": task, "accuracy": row})

    def _evaluate(self, task: int) -> dict[str, list[float]]:
        """Accuracy in percent on each task so far, for each score table."""
        self._wait()
        begin = time.perf_counter()
        row: dict[str, list[float]] = {}
        for rows in self._test_rows[: task + 1]:
            tables = self.learner.scores(self.dataset.test_images[rows.to(self.dataset.test_images.device)])
            labels = self.dataset.test_labels[rows]
            for name, table in tables.items():
                hits = (table.argmax(1).cpu() == labels).sum().item()
                row.setdefault(name, []).append(100 * hits / len(labels))
        primary = row[self.learner.primary]
        self._accuracy = sum(primary) / len(primary)
        self.cursor.eval_seconds += time.perf_counter() - begin
        return row

    def _log(self, task: int) -> None:
        self._wait()
        self._terms = self.learner.losses()
        figures = {name: value.tolist() for name, value in self.learner.figures().items()}
        self._record({"kind": "step", "task": task, "terms": self._terms, "figures": figures})
        if self.watch is not None:
            batch = self.config.stream.batch_size
            rate = self.cursor.position * batch / max(self.cursor.seconds, 1e-9)
            self.watch(
                Progress(
                    self.cursor.position,
                    len(self.plan),
                    task,
                    self.plan.num_tasks,
                    rate,
                    self._terms,
                    self._accuracy,
                )
            )

    def _record(self, record: dict[str, Any]) -> None:
        line = json.dumps({"step": self.cursor.position, **record}) + "\n"
        with (self.folder / "records.jsonl").open("a") as file:
            file.write(line)

    def _checkpoint(self) -> None:
        self._wait()
        size = (self.folder / "records.jsonl").stat().st_size
        tree = {"learner": self.learner.state_dict(), "cursor": vars(self.cursor), "records_bytes": size}
        header = {
            "kind": "run",
            "hash": self.config.hash,
            "image_shape": self.learner.image_shape,
            "environment": self.environment,
        }
        write_state(self.folder / "checkpoint", tree, header)

    def _conclude(self) -> dict[str, Any]:
        if self.config.output.keep_checkpoint:
            self._checkpoint()
        device = self.learner.engine.device
        cuda = device.type == "cuda"
        result = {
            "format": RESULT_FORMAT,
            "hash": self.config.hash,
            "cell": self.config.cell,
            "seed": self.config.seed,
            "stream": self.plan.hash,
            "data": self.dataset.fingerprint,
            "primary": self.learner.primary,
            "metrics": {
                name: Metrics.of(AccuracyMatrix.from_rows(rows)).plain() for name, rows in self.cursor.rows.items()
            },
            "matrices": self.cursor.rows,
            "steps": self.cursor.position,
            "ms_per_step": 1000 * self.cursor.seconds / self.cursor.position,
            "train_seconds": self.cursor.seconds,
            "eval_seconds": self.cursor.eval_seconds,
            "bytes_held": self.learner.nbytes,
            "peak_device_bytes": torch.cuda.max_memory_allocated(device) if cuda else None,
            "class_names": list(self.dataset.class_names),
            "environment": self.environment,
            "config": self.config.plain(),
        }
        write_aside(self.folder / "result.json", json.dumps(result, indent=1).encode())
        return result

    def _wait(self) -> None:
        """Charge the device's outstanding work to training before the clock is used for something else."""
        if self.learner.engine.device.type == "cuda":
            begin = time.perf_counter()
            torch.cuda.synchronize(self.learner.engine.device)
            self.cursor.seconds += time.perf_counter() - begin

    @contextmanager
    def _stopping_politely(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask for a stop at the next step; a second one stops at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}

        def ask(number: int, frame: FrameType | None) -> None:
            self._stop = number
            signal.signal(number, before[signal.Signals(number)])

        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def read_run_config(folder: Path) -> RunConfig:
    """The configuration a run folder was begun with."""
    file = folder / "config.json"
    try:
        content = json.loads(file.read_text())
        config = RunConfig.parse(content["config"])
    except OSError:
        raise CheckpointError(f"expected a run folder, got {folder} without a config.json; check the path") from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"expected a run's configuration, got a damaged {file}; restore it") from None
    if config.hash != content["hash"]:
        raise CheckpointError(
            f"expected run {content['hash']} in {folder}, got a config.json that was edited; restore it"
        )
    return config


def _due(position: int, every: int | None) -> bool:
    return every is not None and (position + 1) % every == 0


def _rows_of(labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    return torch.isin(labels, torch.tensor(classes)).nonzero().flatten()
