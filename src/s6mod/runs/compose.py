"""A run's configuration from what a person gives: words, a file, single fields; and what fits own data."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from s6mod.config import assign, merge, read_yaml
from s6mod.data import DataConfig
from s6mod.data.catalog import spell
from s6mod.data.streams import StreamConfig
from s6mod.errors import ConfigError, DataError
from s6mod.files import expanded
from s6mod.learner.preset import split_learner, worded
from s6mod.methods import methods
from s6mod.presets import datasets, preset
from s6mod.runs.cells import names_a_stream
from s6mod.runs.config import RunConfig

PARTS = ("method", "branch", "teacher", "data")  # what a preset is chosen by; each may be given as a bare name
Plain = dict[str, Any]


def compose(
    given: Mapping[str, Any],
    file: Path | None = None,
    assignments: Sequence[str] = (),
    place: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Defaults, then the preset of what was chosen, then the file, the fields given, the place, ``key=value``.

    A word for a learner in place of a method stands for values that lie on top of the preset.

    Later ones win. Fields that are None are not given.
    """
    chosen = _named(read_yaml(file) if file is not None else {})
    chosen = merge(chosen, _named({name: value for name, value in given.items() if value is not None}))
    chosen = merge(chosen, place or {})
    for assignment in assignments:
        chosen = merge(chosen, _named(assign({}, assignment)))

    def name(part: str, default: str) -> str:
        named = chosen.get(part)
        return str(named.get("name", default)) if isinstance(named, dict) else default

    method, data = chosen.get("method"), name("data", "digits")
    if isinstance(method, dict) and (word := worded(str(method.get("name")), data)):
        chosen = merge(word, chosen | {"method": {key: value for key, value in method.items() if key != "name"}})

    learner, branch, teacher = name("method", "er"), name("branch", "none"), name("teacher", "none")
    said = [f"--{part} {word}" for part, word in zip(PARTS, split_learner(learner), strict=False) if word != "none"]
    if len(said) > 1:
        raise ConfigError(f"expected a method alone, got {learner!r}; give {' '.join(said)}")
    if learner not in methods and names_a_stream(learner):
        raise ConfigError(f"expected a method, got {learner!r}, a kind of stream; write --set stream.kind={learner}")
    memory = chosen.get("memory_size")
    values = merge(preset(learner, branch, data, memory, teacher), chosen)
    for part, given_name, example in (("branch", branch, "s6mod"), ("teacher", teacher, "mkd")):
        own = chosen.get(part)
        if given_name == "none" and (own is None or isinstance(own, dict)):  # else refused with all other fields
            if options := [key for key in own or {} if key != "name"]:
                raise ConfigError(f"expected a {part} for {part}.{options[0]}, got none; add --{part} {example}")
            values[part] = None
    return RunConfig.parse(fitted(values))


def elsewhere(
    device: str | None = None, data_root: str | None = None, track: Sequence[str] | None = None
) -> dict[str, Any]:
    """Fields that say where a run is computed, read and mirrored; none of them names it.

    The data's folder is named so that whoever resumes the run from another folder finds it.
    """
    values: Plain = {} if device is None else {"engine": {"device": device}}
    values |= {} if data_root is None else {"data": {"root": str(expanded(data_root).absolute())}}
    return values | ({"output": {"track": list(track)}} if track else {})


def fitted(values: Plain) -> Plain:
    """The same with as many tasks as own data has classes, where that is less than the default and none are given."""
    stream, data = values.get("stream", {}), values.get("data", {})
    if not isinstance(stream, Mapping) or "tasks" in stream or not isinstance(data, Mapping):
        return values
    if data.get("name", "digits") in datasets():
        return values
    try:
        classes = _classes(DataConfig.parse(data))
    except (ConfigError, DataError, OSError):  # not there, or not as it should be: whoever reads it says so
        return values
    usual = StreamConfig().num_tasks
    return values if classes is None or classes >= usual else merge(values, {"stream": {"tasks": classes}})


@functools.lru_cache(maxsize=8)
def _classes(data: DataConfig) -> int | None:
    """Asked once for all runs of a sweep or a search."""
    return data.count_classes()


def _named(values: Plain) -> Plain:
    """The same, with a bare name of a part (``branch: s6mod``) or a path of data spelled out as a mapping."""
    bare = {k: v for k, v in values.items() if k in PARTS and isinstance(v, str)}
    return values | {k: spell(v) if k == "data" else {"name": v} for k, v in bare.items()}
