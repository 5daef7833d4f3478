"""What is read of a run's ``config.json`` and ``result.json``, by name and type; what else they hold is not looked at.

A file is compared with this once, where it is parsed, so that nobody behind has to expect less. Fields that older files
lack have a default here. What the options of a configuration mean is not known here: a method may be anybody's. A file
may also have come from anywhere: what becomes the name of a file or stands in a terminal is checked here.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from s6mod.config import Config


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters")
    return text


def _plain(tree: Any) -> Any:
    """A configuration whose keys, at any depth, can be shown, and whose numbers can be compared with others."""
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        _plain(part)
    for key in tree if isinstance(tree, dict) else ():
        _shown(str(key))
    if isinstance(tree, int) and abs(tree) >= 2**63:
        raise ValueError("a number beyond reason")
    return tree


Shown = Annotated[str, AfterValidator(_shown)]  # stands in a terminal, or with its slashes replaced in a file's name
Name = Annotated[Shown, Field(pattern=r"^[^/\\]{1,200}$")]  # of a method, branch or data set: presets are files
Code = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]*$")]  # stands in the name of a file as it is
Percent = Annotated[float, Field(ge=-1000, le=1000)]  # generously: an interval or a difference may leave 0 ... 100
Predictor = Annotated[Shown, Field(pattern="^[^/]+/[^/]+/.+$")]  # weights/statistics/scores
Row = Annotated[list[Percent], Field(min_length=1)]  # accuracy on each task
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Contents(Config):
    model_config = ConfigDict(extra="ignore")


class _Named(_Contents):
    name: Name


class _Engine(_Contents):
    precision: Shown


class _Settings(_Contents):
    method: _Named
    branch: _Named | None = None
    data: _Named
    engine: _Engine
    memory_size: int
    seed: int


class _Environment(_Contents):
    device: Shown  # without it nobody knows the precision
    source: Code = ""
    numerics: Count | None = None  # before it was counted
    command: str | None = None


class _Figures(_Contents):
    accuracy: Percent
    learning_accuracy: Percent
    forgetting: Percent
    forgetting_mose: Percent | None = None
    anytime_accuracy: Percent | None = None


class Begun(_Contents):
    """The ``config.json`` of a run."""

    config: Annotated[_Settings, BeforeValidator(_plain)]
    environment: _Environment
    data: Shown | None = None  # fingerprint


class Finished(Begun):
    """Its ``result.json``, or the record of it."""

    hash: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")]
    cell: Shown
    seed: int
    primary: Shown
    metrics: dict[Shown, _Figures]
    matrices: dict[str, list[list[float]]] = Field({})  # cut out where they are not needed
    predictors: dict[Predictor, Row] = Field({})
    ms_per_step: float
    bytes_held: Count
    steps: Count = 0
    train_seconds: float = 0
    class_names: list[str] = Field([])

    @field_validator("metrics")
    @classmethod
    def _predict(cls, metrics: dict[str, _Figures], info: ValidationInfo) -> dict[str, _Figures]:
        if info.data.get("primary") not in metrics:
            raise ValueError("no figures of the primary score table")
        return metrics
