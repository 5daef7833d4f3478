"""A learner as a file that predicts: its twin on the CPU in float32 is written, so it stays as it is itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from s6mod.config import merge
from s6mod.errors import InputError
from s6mod.export.metadata import Metadata, checked_names
from s6mod.export.write import Exported, check_format, write
from s6mod.files import usable
from s6mod.learner.config import LearnerConfig

if TYPE_CHECKING:
    from s6mod.learner.learner import Learner

_ENGINE = {"device": "cpu", "precision": "float32", "capture": "off", "kernels": "off", "deterministic": False}


def export(learner: "Learner", path: str | Path, classes: Sequence[str] | None) -> Exported:
    """Write what predicts in a learner to a file; ``classes`` are names for its labels in place of its own."""
    path = usable(path)
    check_format(path)
    if learner.steps == 0:
        raise InputError("expected learn() before export(), got a learner that has seen nothing; learn first")
    twin = _twin_of(learner)
    names = checked_names(twin.classes.texts if classes is None else classes, len(twin.classes))
    return write(path, twin.predictor(), _described(twin, names))


def _twin_of(learner: "Learner") -> "Learner":
    """The learner as it is now, once more, on the CPU in float32."""
    config = LearnerConfig.parse(merge(learner.config.plain(), {"engine": _ENGINE}))
    twin = type(learner).from_config(config, learner.own.network, learner.own.optimizer)
    with learner.turn:  # no other thread may learn while its state is copied
        twin.load_state_dict(learner.state_dict())
    return twin


def _described(learner: "Learner", classes: Sequence[str]) -> Metadata:
    config = learner.config
    return Metadata.parse(
        {
            "classes": list(classes),
            "candidates": sorted(learner.task.seen) if config.among_seen else list(range(len(learner.classes))),
            "image_shape": learner.image_shape,
            "method": config.method.name,
            "branch": None if config.branch is None else config.branch.name,
            "weights": config.weights,
            "statistics": config.statistics,
            "scores": learner.primary,
            "temperature": learner.temperature,
            "steps": learner.steps,
        }
    )
