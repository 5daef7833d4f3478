"""The configuration of a run: a learner's, with the data, the stream and the output; and its name.

The hash of everything that can change a result names the run; folders, device and intervals take no part in it.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from s6mod.config import Config
from s6mod.data import DataConfig, Dataset
from s6mod.data.streams import StreamConfig
from s6mod.errors import CheckpointError, ConfigError
from s6mod.files import read_json
from s6mod.learner.check import check_plug_ins
from s6mod.learner.config import LearnerConfig
from s6mod.methods import methods
from s6mod.run_files import RunFiles
from s6mod.runs import name as naming
from s6mod.trackers import KNOWN, check_name


class OutputConfig(Config):
    """What is written and how often; none of it changes what is learned."""

    log_every: int = Field(50, ge=1, description="steps between two records of loss terms and branch figures")
    checkpoint_every: int = Field(1000, ge=1, description="steps between two checkpoints")
    checkpoint_seconds: float = Field(
        10.0, ge=0, description="seconds between two checkpoints, at least: one that is due sooner is left out"
    )
    eval_every: int | None = Field(
        None, ge=1, description="steps between evaluations within a task; none: at task ends only"
    )
    keep_checkpoint: bool = Field(True, description="keep the final state beside the result")
    predictors: bool = Field(
        True, description="at the end, score all weights, statistics and score tables there are, not only what predicts"
    )
    average: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="decay of averaged weights that are kept for predictors alone; what predicts is as without them",
    )
    tables: Literal["all", "primary"] = Field(
        "all", description="score tables with a row for each task: all, or what predicts and what comes with it"
    )
    track: list[str] = Field(
        [], description="trackers that mirror the run: tensorboard, wandb, mlflow, or MODULE:CLASS of your own"
    )

    @field_validator("track")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        return [check_name(name) for name in dict.fromkeys(names)]


class RunConfig(LearnerConfig):
    """A learner's configuration with the data, the stream and the output."""

    num_classes: int | None = Field(
        None, ge=2, le=1_000_000, description="capacity; none: as many classes as the data set has"
    )
    data: DataConfig = DataConfig()
    stream: StreamConfig = StreamConfig()
    output: OutputConfig = OutputConfig()

    @property
    def hash(self) -> str:
        """Names the run: everything that can change its result, and nothing else."""
        return naming.run_hash(self.plain())

    @property
    def cell(self) -> str:
        """The experiment without its seed: method[+branch][+teacher]/data/memory."""
        return naming.cell(self.plain())

    @property
    def folder_name(self) -> str:
        """A folder name that a person can read and that no two different runs share."""
        return naming.folder_name(self.cell, self.seed, self.hash)

    @property
    def compares_average(self) -> bool:
        """Whether averaged weights are kept that do not predict."""
        return self.average is None and self.output.average is not None

    @property
    def _lacks_boundaries(self) -> bool:
        return not self.stream.shows_boundaries and self.boundaries == "given"

    def check(self) -> None:
        """Refuse what the method cannot carry or do without, before there is a folder or data."""
        check_plug_ins(self)
        if self._lacks_boundaries and methods[self.method.name].needs_boundaries:
            raise ConfigError(
                f"expected a stream that shows boundaries for method {self.method.name!r}, which uses them, "
                f"got kind={self.stream.kind}; set boundaries=on_new_class or drift, or another stream.kind"
            )

    def learner_config(self, dataset: Dataset) -> LearnerConfig:
        """The learner's part, with the capacity filled in."""
        if self.num_classes is not None and self.num_classes < dataset.num_classes:
            raise ConfigError(
                f"expected num_classes of at least {dataset.num_classes}, which {dataset.name} has, "
                f"got {self.num_classes}; raise it or leave it out"
            )
        self.check()
        values = {name: value for name, value in self.plain().items() if name in LearnerConfig.model_fields}
        if self._lacks_boundaries:
            values["boundaries"] = "none"
        if self.compares_average:
            values |= {"average": self.output.average, "predict_with": self.weights}
        return LearnerConfig.parse(values | {"num_classes": self.num_classes or dataset.num_classes})


def read_run_config(folder: Path, track: Sequence[str] | None = None) -> RunConfig:
    """The configuration a run folder was begun with; fields that are newer than the folder have their defaults.

    ``track``: trackers in place of the folder's. Without them, those of ours that it names stay. A MODULE:CLASS goes,
    since the folder may have come from anywhere, and importing it would run whatever it names.
    """
    file = RunFiles(folder).config
    try:
        content = read_json(file)
        config, found = RunConfig.parse(content["config"]), naming.run_hash(content["config"])
        begun_as = content["hash"]
    except OSError:
        raise CheckpointError(f"expected a run folder, got {folder} without a config.json; check the path") from None
    except ConfigError as error:  # what is not known here is not damage: a method of one's own, a later version's field
        raise ConfigError(f"{error} (in {file})") from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"expected a run's configuration, got a damaged {file}; restore it") from None
    if found != begun_as:
        raise CheckpointError(f"expected run {begun_as} in {folder}, got a config.json that was edited; restore it")
    known = [name for name in config.output.track if name in KNOWN]
    for name in config.output.track if track is None else ():
        if name not in KNOWN:
            warnings.warn(
                f"{folder} names the tracker {name}, which is imported only if you name it: add --track {name} to "
                "mirror the run there",
                stacklevel=3,
            )
    output = config.output.model_copy(update={"track": known if track is None else list(track)})
    return config.model_copy(update={"output": output})
