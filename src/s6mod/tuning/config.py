"""What a tuning is asked to do, checked at the door, and the configurations of its trials."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from s6mod.config import Config, assign, digest, merge
from s6mod.data.streams import make_plan
from s6mod.errors import ConfigError
from s6mod.experiments.costs import Cost, cost
from s6mod.experiments.sweep import numbers, refuse_device
from s6mod.files import expanded
from s6mod.presets import datasets
from s6mod.runs.cells import Cell, parse, whole_field
from s6mod.runs.compose import fitted
from s6mod.runs.config import RunConfig
from s6mod.tuning.space import Space, lay, parse_space

REPORTED = range(10)  # seeds that results are reported on


class TuneConfig(Config):
    """What a tuning's YAML file may hold; the options of the command line lie over it."""

    cell: str | None = Field(
        None, description="name of the cell, which must be given; data set and memory may be left to the fields below"
    )
    data: str | None = Field(None, description="data set, if the cell names none, or the path of own data")
    memory: int | None = Field(None, ge=1, description="memory size, if the cell names none")
    search: dict[str, str | list[Any]] = Field({}, description="by dotted field, a range or choices")
    set: dict[str, Any] = Field({}, description="fields of the configuration, the same in all trials")
    tasks: int | None = Field(
        3, ge=1, description="the first so many tasks of the stream count; null: all, a look into the future"
    )
    held_out: float = Field(
        0.1, ge=0, lt=1, description="share of the training images that trials are judged by; 0: the test images"
    )
    seeds: str | list[int] = Field("100-102", description="seeds that the objective is averaged over")
    reported_seeds: bool = Field(False, description="allow seeds 0 to 9, which results are reported on")
    metric: Literal["accuracy", "anytime_accuracy"] = Field("accuracy", description="what is to be high")
    prune: bool = Field(True, description="give a trial up that is below the median of the others at the end of a task")
    trials: int = Field(20, ge=1, description="trials in all; more of them go on with the same study")


@dataclass(frozen=True)
class Tuning:
    """A search, and where it is kept."""

    config: TuneConfig
    out: Path  # parent of its folder
    url: str | None  # of the storage; None: an SQLite file in its folder
    elsewhere: dict[str, Any]  # device and data folder, which take no part in the search's name
    fingerprint: str | None = None  # of own data, which may change behind its name

    @cached_property
    def cell(self) -> Cell:
        """What is tuned."""
        if self.config.cell is None:
            raise ConfigError("expected a cell to tune, got none; name one such as er+s6mod/digits/200")
        return parse(self.config.cell, self.config.data, self.config.memory, self._data_root)

    @cached_property
    def space(self) -> Space:
        """What is searched."""
        return parse_space(self.config.search)

    @cached_property
    def seeds(self) -> list[int]:
        """What the objective is averaged over."""
        given = self.config.seeds
        return numbers(given) if isinstance(given, str) else list(given)

    @property
    def name(self) -> str:
        """Of the study: the same search, from the same preset, has the same name, however many trials it is to have."""
        values = self.config.plain() | {"cell": self.cell.name, "seeds": self.seeds}
        asked = {key: values[key] for key in values if key not in ("trials", "data", "memory", "reported_seeds")}
        asked["preset"] = replace(self.cell, root=None).values()  # which another version may have otherwise
        asked |= {"contents": self.fingerprint} if self.fingerprint is not None else {}
        return f"{self.cell.name.replace('/', '-')}-{digest(asked)}"

    @property
    def folder(self) -> Path:
        """Its runs, its storage if that is a file, and what came out."""
        return self.out / self.name

    @property
    def storage(self) -> str:
        """URL of the storage."""
        return self.url or f"sqlite:///{self.folder.resolve() / 'study.db'}"

    def preset(self, params: dict[str, Any]) -> dict[str, Any]:
        """Plain values that, over the cell's preset, give the configuration of a trial on the whole stream."""
        cell = self.cell.training
        root = self._data_root or cell.root
        values: dict[str, Any] = {"method": {"name": cell.method}, "data": {"name": cell.data}}
        values["data"] |= {"root": str(expanded(root).absolute())} if root is not None else {}
        plug_ins = {"branch": cell.branch, "teacher": cell.teacher}
        values |= {part: {"name": name} for part, name in plug_ins.items() if name != "none"}
        values["memory_size"] = cell.memory
        return lay(merge(values, self._fixed), params)

    def run(self, params: dict[str, Any], seed: int) -> RunConfig:
        """The configuration of one run of a trial, on the whole stream."""
        judged_by = {"data": {"held_out": self.config.held_out}}
        values = merge(merge(merge(self.cell.values(), judged_by), self.preset(params)), self.elsewhere)
        output = {"output": {"keep_checkpoint": False}}  # there will be many
        return RunConfig.parse(fitted(merge(values, output)) | {"seed": seed})

    def on_present_data(self) -> "Tuning":
        """The same on the contents that own data has now; data that is not there, or has too few tasks, is refused."""
        data = self.run({}, self.seeds[0]).data
        found = data.load()
        first = self._first
        tried = [first, *(first | {field: value} for field, each in self.space.items() for value in each.samples)]
        configs = {repr(config.stream): config for config in (self.run(params, self.seeds[0]) for params in tried)}
        for config in configs.values():
            self.shorten(config, config.data.seen_by(found, config.seed).train_labels, found.num_classes)
        return self if data.name in datasets() else replace(self, fingerprint=found.fingerprint)

    def check(self) -> None:
        """Refuse what cannot work, or should not be done unawares."""
        reported = [seed for seed in self.seeds if seed in REPORTED]
        if reported and not self.config.reported_seeds:
            raise ConfigError(
                f"expected seeds that no result is reported on, got {reported[0]}; take 100 and above, or give "
                "--reported-seeds"
            )
        if not self.seeds:
            raise ConfigError("expected seeds to average over, got none; name them with --seeds")
        if "seed" in self.config.set:
            raise ConfigError("expected the seeds of a tuning in --seeds, got one among its fields; give --seeds")
        first = self._first
        for field in first:
            if _holds(self._fixed, field):
                raise ConfigError(f"expected {field} to be searched or fixed, got both; leave out one of them")
        for field, dimension in self.space.items():
            for value in dimension.samples:
                params = first | {field: value}
                refuse_device(self.preset(params))
                config = self.run(params, self.seeds[0])
                config.check()
                _check_tasks(self.config.tasks, config.stream.num_tasks)

    def costs(self) -> list[Cost | None]:
        """What each of its runs will take, if no trial is given up; as the first values of the search have it."""
        config = self.run(self._first, self.seeds[0])
        whole = cost(config.plain())
        if whole is not None and self.config.tasks is not None:
            share = self.config.tasks / config.stream.num_tasks
            whole = replace(whole, steps=round(share * whole.steps), cpu_seconds=share * whole.cpu_seconds)
        return [whole] * (self.config.trials * len(self.seeds))

    @property
    def _fixed(self) -> dict[str, Any]:
        """Fields that are the same in all trials."""
        values: dict[str, Any] = {}
        for change in self.cell.training.changes:
            values = assign(values, whole_field(change))
        return merge(values, self.config.set)

    @property
    def _data_root(self) -> str | None:
        folder: str | None = self.elsewhere.get("data", {}).get("root")
        return folder

    @property
    def _first(self) -> dict[str, Any]:
        return {field: dimension.samples[0] for field, dimension in self.space.items()}

    def shorten(self, config: RunConfig, labels: Tensor, num_classes: int) -> RunConfig:
        """The same run on the first tasks of its stream alone: exactly the beginning of the whole one."""
        if self.config.tasks is None:
            return config
        plan = make_plan(labels, num_classes, config.stream, config.seed)
        _check_tasks(self.config.tasks, plan.num_tasks)
        limit = int(plan.offsets[int((plan.batch_tasks < self.config.tasks).sum())])
        return config.model_copy(update={"stream": config.stream.model_copy(update={"limit": limit})})


def _holds(values: Any, field: str) -> bool:
    """Whether a tree of plain values has something at a dotted field."""
    for part in field.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def _check_tasks(wanted: int | None, there: int) -> None:
    if wanted is not None and wanted >= there:
        raise ConfigError(
            f"expected fewer tasks to tune on than the stream's {there}, got {wanted}; lower --tasks, or give "
            "--whole-stream to look into the future"
        )
