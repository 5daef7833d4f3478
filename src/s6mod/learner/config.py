"""What makes a learner: its method, its branch, its memory and how it computes, as one strict configuration."""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import BeforeValidator, Field, SerializeAsAny, StrictInt, StrictStr

from s6mod.branch import branches
from s6mod.branch.base import Branch, BranchConfig
from s6mod.config import Config
from s6mod.engine.evaluate import ENSEMBLE, Among, Statistics, Weights
from s6mod.engine.settings import EngineConfig
from s6mod.methods import MethodConfig, methods
from s6mod.teacher import TeacherConfig, teachers


class LearnerConfig(Config):
    """Everything that makes a learner what it is."""

    method: Annotated[SerializeAsAny[MethodConfig], BeforeValidator(methods.configure)] = Field(
        description="the method and its options"
    )
    branch: Annotated[
        SerializeAsAny[BranchConfig] | None,
        BeforeValidator(lambda v: None if v is None else branches.configure(v)),
    ] = Field(None, description="the branch and its options, or none")
    teacher: Annotated[
        SerializeAsAny[TeacherConfig] | None,
        BeforeValidator(lambda v: None if v is None else teachers.configure(v)),
    ] = Field(None, description="the teacher and its options, or none")
    network: str | None = Field(
        None, description="the class of a module that was brought as network; none: the method makes its own"
    )
    optimizer: str | None = Field(
        None, description="the function that was brought as optimizer; none: by method.optimizer"
    )
    num_classes: int | None = Field(
        None, ge=2, le=1_000_000, description="labels are 0 ... num_classes - 1; none: of any kind, the learner grows"
    )
    classes: list[StrictInt | StrictStr] | None = Field(
        None, max_length=1_000_000, description="classes known beforehand, in the order of their outputs; more may come"
    )
    memory_size: int = Field(1000, ge=1, le=1_000_000_000, description="images kept for replay")
    seed: int = Field(0, ge=0, description="all randomness derives from it")
    boundaries: Literal["given", "on_new_class", "drift", "none"] = Field(
        "given",
        description="task boundaries: told by end_task(), assumed when new classes arrive or errors become more "
        "frequent, or never",
    )
    boundary_patience: int = Field(
        20,
        ge=1,
        description="on_new_class: batches without a new class that must lie before an assumed boundary",
    )
    updates: int = Field(
        1, ge=1, le=1000, description="optimiser steps for each batch, each with images of its own from memory"
    )
    statistics: Statistics = Field(
        "running", description="what BatchNorm predicts by: its running averages, or statistics of the memory's images"
    )
    average: float | None = Field(
        None, gt=0, lt=1, description="decay of the averaged weights, which then predict; none: the latest weights do"
    )
    predict_with: Literal["auto", Weights] = Field(
        "auto",
        description="the weights that predict: latest, mean (with a teacher's) or averaged; auto: the last of these "
        "that there are",
    )
    predict_by: str = Field(
        "auto", description="the score table that predicts: head, ncm, branch, ensemble, ...; auto: the method's own"
    )
    predict_among: Among = Field("all", description="classes to choose from: all outputs, or those seen so far")
    publish_every: int | None = Field(
        None, ge=1, description="batches between two copies that predict without waiting for a step; none: no copies"
    )
    publish_seconds: float | None = Field(
        None, gt=0, description="the same by the clock: a copy after a batch if the last one is so old; none: no copies"
    )
    test_then_train: bool = Field(
        False,
        description="whether each batch is predicted before it is learned, to tell the accuracy on the stream and to "
        "calibrate probabilities",
    )
    engine: EngineConfig = EngineConfig()

    @property
    def primary(self) -> str:
        """The name of the score table that predicts: ``predict_by``.

        By itself it is the method's, or the branch's where a linear head would predict.
        """
        if self.predict_by != "auto":
            return self.predict_by
        primary = methods[self.method.name].primary
        stands_in = self.branch is not None and branches[self.branch.name].predicts(self.branch)
        return "branch" if stands_in and primary == "head" else primary

    @property
    def tests(self) -> bool:
        """Whether each batch is predicted before it is learned."""
        return self.test_then_train or self.boundaries == "drift"

    @property
    def publishes(self) -> bool:
        """Whether copies are made that answer in place of the learner."""
        return self.publish_every is not None or self.publish_seconds is not None

    @property
    def weights(self) -> Weights:
        """Which weights predict: averaged ones if they are kept, else the mean with a teacher's, if there is one."""
        return self.all_weights[-1] if self.predict_with == "auto" else self.predict_with

    @property
    def among_seen(self) -> bool:
        """Whether predictions are among the classes seen; in a learner that grows, others have no name."""
        return self.predict_among == "seen" or self.num_classes is None

    @property
    def all_weights(self) -> list[Weights]:
        """Which weights there are."""
        teacher: list[Weights] = [] if self.teacher is None else ["mean"]
        averaged: list[Weights] = [] if self.average is None else ["averaged"]
        return ["latest", *teacher, *averaged]

    @property
    def tables(self) -> list[str]:
        """The names of all score tables that the method and the branch declare, and of the ensemble of them."""
        method = methods[self.method.name]
        scored = self.branch is not None and branches[self.branch.name].scores is not Branch.scores
        return sorted({*method.memory_free, *method.memory_bound, *(["branch"] if scored else []), ENSEMBLE})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as plain values: another process checks them and says which method or branch it does not know."""
        return type(self).parse, (self.plain(),)


class LearnerOptions(TypedDict, total=False):
    """The fields of a ``LearnerConfig`` but method and branch, as a call gives them."""

    num_classes: int | None
    classes: list[int | str] | None
    memory_size: int
    seed: int
    boundaries: str
    boundary_patience: int
    updates: int
    statistics: str
    average: float | None
    predict_with: str
    predict_by: str
    predict_among: str
    publish_every: int | None
    publish_seconds: float | None
    test_then_train: bool
    engine: dict[str, Any] | EngineConfig | None
    teacher: str | dict[str, Any] | TeacherConfig | None
