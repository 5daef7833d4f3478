"""Stored configurations, completed with what has been added since, and how two of them differ.

How a record is found is told as a whole in docs/reference/runs.md.

A record holds the whole configuration of its run as it was then. Fields may have been added since: ``complete`` fills
them with their defaults, which keep the old behaviour, so that the record is still found by the present hash. Fields
may have been retired: they go if they have the value that is now a constant, and any other is refused. A field that is
not known at all stays if it was set: such a record is of another setting.
"""

import functools
import json
from typing import Any

from s6mod.config import digest, retired_in, spelled
from s6mod.data.streams import StreamConfig
from s6mod.errors import ConfigError
from s6mod.registry import NamedConfig
from s6mod.retired import without
from s6mod.runs.config import RunConfig
from s6mod.runs.name import PARTS, config_class, decisive

Plain = dict[str, Any]


def complete(values: Plain) -> Plain:
    """A run's configuration with every field of today: what ``RunConfig.parse(values).plain()`` gives."""
    stream = values.get("stream")
    kind = stream.get("kind") if isinstance(stream, dict) else None
    defaults = run_defaults() if kind is None else run_defaults() | {"stream": _stream_defaults(str(kind))}
    plain: Plain = _lay(defaults, {key: value for key, value in values.items() if key not in PARTS})
    for part in PARTS:
        own = values.get(part)
        plain[part] = _complete_part(config_class(part, str(own.get("name"))), own) if isinstance(own, dict) else None
    return plain


def setting(plain: Plain) -> str:
    """Names what was run, whatever the seed and however it was computed."""
    return digest(_setting(plain))


def base_setting(plain: Plain) -> str:
    """The setting of the same run without its branch and its teacher."""
    return setting(plain | {"branch": None, "teacher": None})


def departures(plain: Plain, usual: Plain) -> list[str]:
    """How one complete configuration departs from another, as ``key=value``; seed and engine do not count."""
    mine, theirs = (dict(_leaves(_setting(each))) for each in (plain, usual))
    return [f"{key}={json.dumps(value)}" for key, value in mine.items() if theirs.get(key, ...) != value]


def engine_departures(plain: Plain, usual: Plain) -> list[str]:
    """The same of the engine alone, as far as it can change a result."""
    return [
        f"engine.{key}={json.dumps(value)}"
        for key, value in decisive(plain)["engine"].items()
        if usual["engine"].get(key, ...) != value
    ]


@functools.cache
def run_defaults() -> Plain:
    """All fields of a run but method, branch and teacher."""
    run = RunConfig.parse({"method": {"name": "er"}}).plain()
    return {key: value for key, value in run.items() if key not in PARTS}


@functools.cache
def _stream_defaults(kind: str) -> Plain:
    """All fields of a stream of this kind; none if nobody knows it."""
    try:
        return StreamConfig.parse({"kind": kind}).plain()
    except ConfigError:
        return {}


def _complete_part(kind: type[NamedConfig] | None, own: Plain) -> Plain:
    """A method, branch or teacher with all its fields; as it is if nobody knows it."""
    if kind is None:
        return own
    completed: Plain = _lay(_defaults_of(kind), without(spelled(kind, own), retired_in(kind)))
    return completed


@functools.cache
def _defaults_of(kind: type[NamedConfig]) -> Plain:
    try:
        return kind.parse({"name": kind.model_fields["name"].default}).plain()
    except ConfigError:  # it has a field without a default
        return {}


def _lay(default: Any, value: Any) -> Any:
    """``value`` with what it lacks from ``default``, whole numbers as floats where the field is one."""
    if isinstance(default, dict) and isinstance(value, dict):
        if value.get("kind", default.get("kind")) != default.get("kind"):
            return value  # another kind has other fields
        merged = dict(default)
        for key, part in value.items():
            if part is not None or key in default or not default:  # else: no longer known, and was not used
                merged[key] = _lay(default.get(key), part) if isinstance(part, dict | list | int) else part
        return merged
    if isinstance(default, list) and default and isinstance(value, list):
        return [_lay(default[0], part) for part in value]
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _setting(plain: Plain) -> Plain:
    return {key: value for key, value in decisive(plain).items() if key not in ("engine", "seed")}


def _leaves(tree: Plain, prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return leaves
