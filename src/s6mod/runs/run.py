"""One run: one learner, one stream, one folder.

The folder holds the configuration, the stream plan, the records (JSON lines), the latest checkpoint and, at the end,
the result. A run left at any step, politely or by force, goes on from its checkpoint to the same bits. Who takes the
steps, alone or side by side with other runs, is decided by ``execute``.
"""

import functools
import json
import math
import shutil
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from s6mod.data import Dataset
from s6mod.data.streams import StreamPlan, make_plan
from s6mod.engine.checkpoint import StateWriter, has_state
from s6mod.engine.evaluate import ENSEMBLE
from s6mod.errors import CheckpointError, ConfigError
from s6mod.files import clear_aside, read_json, write_whole
from s6mod.learner import Learner
from s6mod.metrics import confusion
from s6mod.runs.alarms import conditions, raise_alarms
from s6mod.runs.config import RunConfig, read_run_config
from s6mod.runs.environment import describe
from s6mod.runs.evaluation import TestTasks
from s6mod.runs.folder import RunFolder
from s6mod.runs.progress import Cursor, Progress, Watcher
from s6mod.runs.records import read_result
from s6mod.runs.state import restore, snapshot
from s6mod.runs.summary import summary
from s6mod.trackers import Mirrors, Subject


class Held(ConfigError):  # noqa: N818 - nobody's fault
    """Another process has the run under way."""


class Run:
    """One run in one folder, which no other process can have until it is closed."""

    def __init__(
        self, config: RunConfig, folder: Path, dataset: Dataset | None = None, watch: Watcher | None = None
    ) -> None:
        self.config, self.folder, self.watch = config, folder, watch
        self._files = RunFolder(folder)
        self.hash = self._files.begun_as or config.hash
        self._states = StateWriter(self._files.checkpoint)
        whole = dataset if dataset is not None else config.data.load()
        self.fingerprint = whole.fingerprint
        data = config.data.seen_by(whole, config.seed)
        self.learner = Learner.from_config(config.learner_config(data))
        self.learner.build(data.image_shape)  # what cannot be built is refused before a folder is made
        self.dataset = data.to(self.learner.engine.device)
        self.plan = make_plan(data.train_labels, data.num_classes, config.stream, config.seed)
        self.cursor = Cursor()
        if self.learner.engine.device.type == "cuda":
            torch.set_num_threads(1)  # the host's part of a step is too small to share; more threads only spin
        self.environment = describe(self.learner.engine.device)
        subject = Subject(folder, config.cell, config.seed, self.hash, config.plain())
        self.mirrors = Mirrors(config.output.track, subject)
        self._accuracy: float | None = None
        self._terms: dict[str, float] = {}
        self._diverged = False
        self._saved_at = -math.inf  # on the clock of time.monotonic
        self._tests = TestTasks(self.dataset, self.plan.task_classes, self.learner.engine.eval_batch)

    # --- life of a run ----------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, config: RunConfig, folder: Path, dataset: Dataset | None = None, watch: Watcher | None = None
    ) -> "Run":
        """A run at its first step, in a new folder."""
        if RunFolder(folder).begun:
            raise ConfigError(
                f"expected a folder without a run, got {folder}, which has one; "
                "go on with --resume or choose another --out"
            )
        run = cls(config, folder, dataset, watch)
        folder.mkdir(parents=True, exist_ok=True)
        with run._holding():
            if run._files.begun:
                raise Held(f"expected a folder without a run, got {folder}, which has just got one; resume it")
            run.plan.save(run._files.stream)
            content = {
                "hash": run.hash,
                "data": run.fingerprint,
                "config": config.plain(),
                "environment": run.environment,
            }
            write_whole(run._files.config, json.dumps(content, indent=1))
            run.mirrors.begin(kept=False)
        return run

    @classmethod
    def resume(
        cls,
        folder: Path,
        dataset: Dataset | None = None,
        watch: Watcher | None = None,
        config: RunConfig | None = None,
    ) -> "Run":
        """A run as its folder left it; ``config``: the same run with another device or data folder."""
        track = None if config is None else config.output.track
        begun_with = read_run_config(folder, track)  # what is damaged or edited is refused
        config = config or begun_with
        kept = config.output.model_copy(update={"average": begun_with.output.average})  # it is part of the state
        run = cls(config.model_copy(update={"output": kept}), folder, dataset, watch)
        begun_on = read_json(run._files.config).get("data")
        same = run.plan.hash == StreamPlan.load(run._files.stream).hash
        if not same or begun_on != run.fingerprint:
            raise CheckpointError(
                f"expected the stream that {folder} was begun on, got other data; give the same data set"
            )
        with run._holding():
            if has_state(run._files.checkpoint):
                restore(run, run._files)
            elif run.result is None and run._files.has_records:
                warnings.warn(f"no checkpoint in {folder}: its run starts over", stacklevel=2)
            run.mirrors.begin(kept=run.cursor.position > 0 or run.result is not None)
        return run

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, dataset: Dataset | None = None, watch: Watcher | None = None
    ) -> "Run":
        """A run that is begun, gone on with, or found done, as its folder has it; a note of failure is taken away."""
        files = RunFolder(folder)
        if files.result.exists():
            read_result(files.result, sealed=False)  # what is damaged is refused
        files.failure.unlink(missing_ok=True)
        return (
            cls.resume(folder, dataset, watch, config)
            if files.config.exists()
            else cls.begin(config, folder, dataset, watch)
        )

    def close(self) -> None:
        """Leave the run, wherever it stands: what it has begun to save is on disk, and others may have its folder."""
        try:
            self._states.wait()
        finally:
            self.mirrors.close()
            self._files.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(CheckpointError) if error is not None else nullcontext():  # what ended it is what is told
            self.close()

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if the run has come to its end."""
        return self._files.read_result()

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """The folder is ours from here on, unless this fails."""
        if not self._files.hold():
            raise Held(f"expected {self.folder} to be free, got a run that another process has under way; wait for it")
        try:
            clear_aside(self.folder, older_than=0)  # nobody else writes here
            yield
        except BaseException:
            self.close()
            raise

    def steps(self) -> Generator[None, None, None]:
        """Go on to the end, pausing after each batch; a run may be left at any pause. At the end there is a result."""
        if self.result is None:
            yield from self._batches()
            self._conclude()
        result = self.result
        assert result is not None
        self.mirrors.end(result)

    def _batches(self) -> Generator[None, None, None]:
        if self.cursor.position == 0:
            self._files.clear()
        for position, ids, task, is_last in self.plan.batches(self.cursor.position):
            self._learn(ids)
            if is_last:
                self._end_task(task)
            elif _due(position, self.config.output.eval_every):
                self._record({"kind": "evaluation", "task": task, "accuracy": self._evaluate(task)[1]})
            if _due(position, self.config.output.log_every) or is_last:
                self._log(task, is_last)
            if _due(position, self.config.output.checkpoint_every) and self._rested:
                self.checkpoint(beside=not self.config.output.track)  # mirrors may only tell what is on disk
            yield

    # --- parts of a step --------------------------------------------------------------------------------------

    def _learn(self, ids: Tensor) -> None:
        rows = ids.to(self.dataset.train_images.device, non_blocking=True)
        self.learner.learn(self.dataset.train_images[rows], self.dataset.train_labels[ids])
        self.cursor.position += 1

    def _end_task(self, task: int) -> None:
        if self.plan.boundaries:
            self.learner.end_task()
        last = task == self.plan.num_tasks - 1
        guesses, row = self._evaluate(task, compare=last and self.config.output.predictors)
        rows = self.cursor.rows or {name: [] for name in row}  # a table has a row for each task, or none
        self.cursor.rows = {name: [*rows[name], row[name]] for name in rows if name in row}
        row = {name: row[name] for name in self.cursor.rows}
        self._record({"kind": "task", "task": task, "accuracy": row})
        if last:
            counts = confusion(guesses, self._tests.labels[: len(guesses)], self.learner.classes.capacity).tolist()
            self._record({"kind": "confusion", "task": task, "classes": self.plan.task_classes, "counts": counts})

    def _evaluate(self, task: int, compare: bool = False) -> tuple[Tensor, dict[str, list[float]]]:
        """What the primary table takes the test images of the tasks so far for, and each table's accuracy in percent.

        ``compare``: note all that could predict.
        """
        if self.learner.engine.device.type == "cuda":  # steps still under way are training time
            torch.cuda.current_stream(self.learner.engine.device).synchronize()
        begin = time.perf_counter()
        learner, primary = self.learner, self.learner.primary
        only = primary if self.config.output.tables == "primary" else None
        scores = learner.scores_by_all if compare else functools.partial(learner.scores, only=only)
        prefix = f"{learner.config.weights}/{learner.config.statistics}/" if compare else ""
        guesses = self._tests.guesses(task + 1, scores)
        found = {name: self._tests.accuracies(guess) for name, guess in guesses.items()}
        if compare:
            self.cursor.predictors = found
        row = {name.removeprefix(prefix): accuracies for name, accuracies in found.items() if name.startswith(prefix)}
        if primary != ENSEMBLE:
            row.pop(ENSEMBLE, None)
        self._accuracy = sum(row[primary]) / len(row[primary])
        self.cursor.eval_seconds += time.perf_counter() - begin
        return guesses[prefix + primary], row

    def _log(self, task: int, ended: bool) -> None:
        self._terms = self.learner.losses()
        if not self._diverged and not all(map(math.isfinite, self._terms.values())):
            self._diverged = True
            warnings.warn(
                f"a loss term of {self.config.cell} seed {self.config.seed} is not finite at step "
                f"{self.cursor.position}; lower method.optimizer.lr",
                stacklevel=2,
            )
        figures = {name: value.tolist() for name, value in self.learner.figures().items()}
        self._record({"kind": "step", "task": task, "terms": self._terms, "figures": figures})
        self._warn_of(task, figures)
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
                    ended,
                )
            )

    def _warn_of(self, task: int, figures: dict[str, Any]) -> None:
        """Say what the branches find worrying in their figures."""
        cursor, met = self.cursor, conditions([peer.branch for peer in self.learner.peers], figures)
        for sentence in raise_alarms(met, cursor.alarms, cursor.position, cursor.logged):
            warnings.warn(f"{self.config.cell} seed {self.config.seed}: {sentence}", stacklevel=3)
            self._record({"kind": "warning", "task": task, "text": sentence})
        cursor.logged = cursor.position

    def _record(self, record: dict[str, Any]) -> None:
        self.mirrors.record(self._files.append({"step": self.cursor.position, **record}))

    def checkpoint(self, beside: bool = False) -> None:
        """Save the state as it is now; ``beside``: it is written while steps go on."""
        self._states.write(snapshot(self, self._files.secure()))
        self._saved_at = time.monotonic()
        if not beside:
            self._states.wait()
            self.mirrors.secure()

    @property
    def _rested(self) -> bool:
        """Whether the latest checkpoint is old enough for another one; when it is taken changes no result."""
        return time.monotonic() - self._saved_at >= self.config.output.checkpoint_seconds

    def _conclude(self) -> None:
        result = summary(self)
        with suppress(CheckpointError):
            self._states.wait()  # whether or not it was saved, the end takes its place
        if self.config.output.keep_checkpoint:
            try:
                self.checkpoint()
            except CheckpointError as error:  # a full disk, say, must not cost the result, which is small
                warnings.warn(
                    f"the final state of {self.config.cell} seed {self.config.seed} is not saved: {error}", stacklevel=2
                )
        write_whole(self._files.result, json.dumps(result, indent=1))
        if not self.config.output.keep_checkpoint:
            shutil.rmtree(self._files.checkpoint, ignore_errors=True)


def _due(position: int, every: int | None) -> bool:
    return every is not None and (position + 1) % every == 0
