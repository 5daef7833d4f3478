"""What is read of a run's ``config.json`` and ``result.json``, by name and type; what else they hold is not looked at.

A file is compared with this once, where it is parsed, so that nobody behind has to expect less. Fields that older files
lack have a default here. What the options of a configuration mean is not known here: a method may be anybody's.
"""

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from s6mod.config import Config


class _Contents(Config):
    model_config = ConfigDict(extra="ignore")


class _Named(_Contents):
    name: str


class _Engine(_Contents):
    precision: str


class _Settings(_Contents):
    method: _Named
    branch: _Named | None = None
    data: _Named
    engine: _Engine
    memory_size: int
    seed: int


class _Environment(_Contents):
    device: str  # without it nobody knows the precision
    source: str = ""
    numerics: int | None = None  # before it was counted
    command: str | None = None


class _Figures(_Contents):
    accuracy: float
    learning_accuracy: float
    forgetting: float
    forgetting_mose: float | None = None
    anytime_accuracy: float | None = None


class Begun(_Contents):
    """The ``config.json`` of a run."""

    config: _Settings
    environment: _Environment
    data: str | None = None  # fingerprint


class Finished(Begun):
    """Its ``result.json``, or the record of it."""

    hash: str
    cell: str
    seed: int
    primary: str
    metrics: dict[str, _Figures]
    matrices: dict[str, list[list[float]]] = Field({})  # cut out where they are not needed
    predictors: dict[str, list[float]] = Field({})  # accuracy on each task by weights/statistics/scores
    ms_per_step: float
    bytes_held: int
    steps: int = 0
    train_seconds: float = 0
    class_names: list[str] = Field([])

    @field_validator("metrics")
    @classmethod
    def _predict(cls, metrics: dict[str, _Figures], info: ValidationInfo) -> dict[str, _Figures]:
        if info.data.get("primary") not in metrics:
            raise ValueError("no figures of the primary score table")
        return metrics
