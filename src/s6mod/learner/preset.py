"""A learner's configuration from a preset and what is changed of it."""

from collections.abc import Mapping
from typing import Any

from s6mod.config import Config, merge
from s6mod.learner.config import LearnerConfig
from s6mod.methods import methods
from s6mod.presets import learner_preset

EVERYDAY = "everyday"  # what a learner starts from that is told no method
PARTS = ("method", "branch")  # each may be given as a bare name


def composed(preset: str, given: Mapping[str, Any]) -> LearnerConfig:
    """The learner's part of a preset with the fields that are given laid on top, option by option.

    Another method than the preset's, or another branch, comes with its own defaults.
    """
    values = {name: value for name, value in learner_preset(preset).items() if name in LearnerConfig.model_fields}
    values["method"] = methods.configure(values["method"]).plain()  # a word for options is spelled out, to be changed
    return LearnerConfig.parse(merge(values, {name: _plain(name, value) for name, value in given.items()}))


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Config):
        return value.plain()
    return {"name": value} if name in PARTS and isinstance(value, str) else value
