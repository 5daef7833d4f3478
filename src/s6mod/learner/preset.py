"""A learner's configuration: from a method and its options, or from a preset and what is changed of it.

A preset is a word (``everyday``, ``best``), or a cell, METHOD[+BRANCH][+TEACHER]/DATA[/MEMORY], whose published setting
is meant. A word may stand in a cell, as in ``best/cifar100/2000``: what it means for the data set lies on top of the
data set's values.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from s6mod.branch import branches
from s6mod.branch.base import BranchConfig
from s6mod.config import Config, merge, nearest
from s6mod.errors import ConfigError
from s6mod.learner.classes import check_types
from s6mod.learner.config import LearnerConfig, LearnerOptions
from s6mod.methods import MethodConfig, methods
from s6mod.presets import CLASSES, learner_preset, preset, words
from s6mod.teacher import teachers

EVERYDAY = "everyday"  # what a learner starts from that is told no method
PARTS = ("method", "branch", "teacher")  # each may be given as a bare name


def configured(
    method: str | dict[str, Any] | MethodConfig | None,
    branch: str | dict[str, Any] | BranchConfig | None,
    options: LearnerOptions,
) -> LearnerConfig:
    """The configuration of ``Learner(method, branch, **options)``; with no method named it starts from ``EVERYDAY``."""
    given: dict[str, Any] = {name: value for name, value in options.items() if name != "engine" or value is not None}
    if isinstance(branch, str) and branch in teachers and branch not in branches:
        raise ConfigError(f"expected a branch, got the teacher {branch!r}; write teacher={branch!r}")
    if branch is not None:
        given["branch"] = branches.configure(branch)
    if given.get("teacher") is not None:
        given["teacher"] = teachers.configure(given["teacher"])
    if method is None or (isinstance(method, dict) and "name" not in method):
        return composed(EVERYDAY, given | {"method": method or {}})
    if isinstance(method, str):
        method = _method_alone(method)
    given = {"method": methods.configure(method), "predict_among": "seen"} | given
    return _parsed({name: _plain(name, value) for name, value in given.items()}, named=True)


def composed(name: str, given: Mapping[str, Any]) -> LearnerConfig:
    """The learner's part of a preset with the fields that are given laid on top, option by option.

    Another method than the preset's, or another branch, comes with its own defaults.
    """
    values = _of_cell(name) if "/" in name else learner_preset(name)
    values = {name: value for name, value in values.items() if name in LearnerConfig.model_fields}
    values["method"] = methods.configure(values["method"]).plain()  # a word for options is spelled out, to be changed
    return _parsed(merge(values, {name: _plain(name, value) for name, value in given.items()}))


def worded(learner: str, data: str | None) -> dict[str, Any]:
    """The values of a word that stands for a learner on a data set, and nothing for any other name."""
    return learner_preset(learner, data) if learner in words() else {}


def split_learner(learner: str, data: str | None = None) -> tuple[str, str, str]:
    """Method, branch and teacher of METHOD[+BRANCH][+TEACHER] or of a word; what is not there is "none"."""
    if values := worded(learner, data):
        method, branch, teacher = (values.get(part, {}).get("name", "none") for part in PARTS)
        return method, branch, teacher
    method, teacher = learner, "none"
    if (last := _last(method)) != "none" and last not in branches and last in teachers:
        method, teacher = method.removesuffix(f"+{last}"), last
    branch = _last(method)
    return method.removesuffix(f"+{branch}"), branch, teacher


def _method_alone(name: str) -> str:
    """The name of a method; that of a whole learner, such as ``er+s6mod`` or ``best``, is refused."""
    if name in words():
        raise ConfigError(f"expected a method, got the preset {name!r}; write Learner.preset({name!r})")
    said = [f"{part}={word!r}" for part, word in zip(PARTS, split_learner(name), strict=True) if word != "none"]
    if len(said) > 1:
        raise ConfigError(f"expected a method alone, got {name!r}; write Learner({', '.join(said)})")
    return name


def _last(learner: str) -> str:
    """What stands behind the last plus; none if nothing does: the name of a method may have one, as der++ does."""
    if learner in methods:
        return "none"
    return (learner.rpartition("+")[2] if "+" in learner else "") or "none"


def _of_cell(name: str) -> dict[str, Any]:
    """A run's values, with the number of classes of its data set."""
    learner, data, *memory = name.split("/")
    if data not in CLASSES:
        raise ConfigError(f"expected a data set that has a preset in {name!r}, got {data!r}; {nearest(data, CLASSES)}")
    if len(memory) > 1 or not all(size.isdecimal() for size in memory):
        raise ConfigError(
            f"expected METHOD[+BRANCH]/DATA/MEMORY, got {name!r}; give the memory as a number and changes as keywords"
        )
    method, branch, teacher = split_learner(learner, data)
    values = preset(method, branch, data, int(memory[0]) if memory else None, teacher)
    return merge(values, worded(learner, data)) | {"num_classes": CLASSES[data]}


def _parsed(values: dict[str, Any], named: bool = False) -> LearnerConfig:
    """The configuration; of a keyword that is none, it is told within which one it belongs."""
    known = {name: value for name, value in values.items() if name in LearnerConfig.model_fields}
    for stray in [name for name in values if name not in known]:
        if places := [f"{part}={inside}" for part, inside in _inside(LearnerConfig.parse(known).plain(), stray, named)]:
            raise ConfigError(f"expected a known option, got {stray!r}; did you mean {' or '.join(places)}?")
    config = LearnerConfig.parse(values)
    check_types(config.classes or ())  # not of a stored configuration, which an older version may have written
    return config


def _inside(values: dict[str, Any], word: str, named: bool) -> Iterator[tuple[str, str]]:
    """Where options of this name stand in a tree: the key of each branch, and how the rest is written."""
    for part, inner in values.items():
        if isinstance(inner, dict):
            name = f"'name': {inner['name']!r}, " if named and part in PARTS else ""
            if word in inner:
                yield part, f"{{{name}{word!r}: ...}}"
            for deeper, text in _inside(inner, word, named):
                yield part, f"{{{name}{deeper!r}: {text}}}"


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Config):
        return value.plain()
    return {"name": value} if name in PARTS and isinstance(value, str) else value
