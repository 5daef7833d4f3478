"""What can be asked of a stream: its kind, and options that are checked against it."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from s6mod.config import Config

OF_KIND: dict[str, tuple[str, float]] = {  # options that belong to one kind, and what null means there
    "blur": ("blurry", 0.1),
    "return_probability": ("repeated", 0.5),
    "repeats": ("repeated", 1),
    "spread": ("task-free", 0.05),
}


class StreamConfig(Config):
    """How a data set becomes a stream."""

    kind: Literal["class-incremental", "blurry", "repeated", "task-free", "iid"] = Field(
        "class-incremental",
        description="class-incremental: disjoint classes, task after task; blurry: some samples of each class come in "
        "other tasks; repeated: classes come back in later tasks; task-free: classes come and go, no boundary is shown"
        "; iid: all samples in random order, no boundary is shown",
    )
    tasks: int | tuple[tuple[int, ...], ...] = Field(
        5,
        description="number of tasks T, to which the classes are dealt evenly; or the classes of each task, as "
        "[[0, 1], [2]]: those not listed do not come",
    )
    batch_size: int = Field(
        10,
        ge=1,
        description="samples in a stream batch B; the last one of a task (task-free, iid: of the stream) may be "
        "smaller",
    )
    class_order: Literal["seeded", "fixed"] | tuple[int, ...] = Field(
        "seeded", description="seeded: shuffled by the run's seed; fixed: 0..C-1; or all class ids in the wanted order"
    )
    imbalance: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=False,
        description="long tail: how many times more samples the most frequent class has than the least; 1: all come",
    )
    blur: float | None = Field(
        None,
        ge=0,
        lt=1,
        validate_default=True,
        description="blurry: share of each class's samples that come in other tasks; null: 0.1",
    )
    return_probability: float | None = Field(
        None,
        ge=0,
        le=1,
        validate_default=True,
        description="repeated: probability that a class comes back, for each later task; null: 0.5",
    )
    repeats: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="repeated: how often each sample comes in the whole stream; null: 1",
    )
    spread: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        validate_default=True,
        description="task-free: standard deviation of a class's arrival times, as a share of the stream; null: 0.05",
    )
    samples_per_task: int | None = Field(None, ge=1, description="the first so many samples of each task; null: all")
    limit: int | None = Field(None, ge=1, description="the first so many samples of the whole stream; null: all")

    @property
    def shows_boundaries(self) -> bool:
        """Whether the learner is told that a task ends, and batches end there."""
        return self.kind not in ("task-free", "iid")

    @property
    def num_tasks(self) -> int:
        """Number of tasks T."""
        return self.tasks if isinstance(self.tasks, int) else len(self.tasks)

    @field_validator(*OF_KIND)
    @classmethod
    def _belongs(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Fill in what null means for the kind; refuse what would mean nothing."""
        owner, usual = OF_KIND[str(info.field_name)]
        kind = info.data.get("kind", owner)  # an unknown kind has its own message
        if value is not None and kind != owner:
            raise ValueError(f"expected it for a {owner} stream only, got it for a {kind} one; leave it out")
        return usual if value is None and kind == owner else value

    @model_validator(mode="after")
    def _tasks_make_sense(self) -> "StreamConfig":
        least = 2 if self.kind == "blurry" else 1
        if self.num_tasks < least:
            raise ValueError(f"expected {least} or more tasks for a {self.kind} stream, got {self.tasks}; raise tasks")
        if isinstance(self.tasks, int):
            return self
        listed = [label for classes in self.tasks for label in classes]
        if len(set(listed)) < len(listed) or not all(self.tasks):
            raise ValueError(
                f"expected tasks that share no class and have one at least, got {self.tasks}; "
                "list each class once; for classes that come back use kind=repeated"
            )
        if self.class_order != "seeded":
            raise ValueError("expected no class_order beside tasks that list their classes, got both; leave it out")
        return self
