"""Presets: readable YAML, one file for the data sets, one for each method or plug-in that differs.

A file of a method maps a data set, ``data/memory`` or ``all`` to a fragment of a run's configuration. ``learners`` has
settings of a learner by a word, for ``all`` data or for a data set that has its own; they lie on top of the data set's
preset. Nothing here imports torch: what the values mean is known to the configuration classes alone.
"""

import functools
from importlib import resources
from typing import Any

import yaml

from s6mod.config import merge, nearest
from s6mod.errors import ConfigError

# Of the data sets that have a preset, how many classes each has.
CLASSES = {"digits": 10, "fashion-mnist": 10, "cifar10": 10, "cifar100": 100, "tiny-imagenet": 200}


def datasets() -> tuple[str, ...]:
    """Names of the data sets that have a preset."""
    return tuple(_read("datasets"))


def preset(method: str, branch: str, data: str, memory_size: int | None, teacher: str = "none") -> dict[str, Any]:
    """The plain values of a run's configuration that the published setting (or our small default) gives.

    ``branch`` and ``teacher`` may be "none".
    """
    values = merge({"method": {"name": method}, "data": {"name": data}}, _read("datasets").get(data, {}))
    if memory_size is not None:
        values["memory_size"] = memory_size
    settings = ("all", data, f"{data}/{values.get('memory_size')}")
    for file in _lineage(method):
        for setting in settings:
            values = merge(values, _read(file).get(setting, {}))
    for part, name in (("branch", branch), ("teacher", teacher)):
        if name == "none":
            continue
        values = merge(values, {part: {"name": name}})
        for group in ("all", method):
            for setting in settings:
                values = merge(values, {part: _read(name).get(group, {}).get(setting, {})})
    return values


def words() -> tuple[str, ...]:
    """Words that stand for a whole learner: a method with plug-ins and settings."""
    return tuple(_read("learners"))


def learner_preset(word: str, data: str | None = None) -> dict[str, Any]:
    """The plain values of a learner's configuration that a word stands for, such as ``everyday``, on a data set."""
    if word not in _read("learners"):
        raise ConfigError(
            f"expected a preset, got {word!r}; {nearest(word, _read('learners'))} "
            "(or METHOD[+BRANCH]/DATA/MEMORY, such as er+s6mod/cifar100/2000)"
        )
    by_data = _read("learners")[word]
    return dict(by_data.get(data, by_data["all"]))


def _lineage(method: str) -> list[str]:
    """The files that a method's options come from: a pair of networks (ccldc) starts from the method that it wraps."""
    base, _, ending = method.rpartition("-")
    return [base, ending, method] if ending == "ccldc" else [method]


@functools.cache
def _read(name: str) -> dict[str, Any]:
    file = resources.files(__name__) / f"{name}.yaml"
    return dict(yaml.safe_load(file.read_text(encoding="utf-8"))) if file.is_file() else {}
