"""The defaults of every configuration field without importing torch, so that stored runs are recognised at once.

A record holds the whole configuration of its run as it was then. Fields may have been added since: ``complete`` fills
them with their defaults, which keep the old behaviour, so that the record is still found by the present hash. A field
that is no longer known stays if it was set: such a record is of another setting. The defaults come from the
configuration classes; as those need torch, they are kept in a file named after the source they were read from.
"""

import functools
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from s6mod.config import digest
from s6mod.errors import ConfigError
from s6mod.files import write_whole
from s6mod.registry import plugins
from s6mod.runs.environment import source_digest
from s6mod.runs.name import LATER, decisive

Plain = dict[str, Any]
KEEP_SECONDS = 30 * 86400  # files of other versions of the source, which other checkouts may still use


def complete(values: Plain) -> Plain:
    """A run's configuration with every field of today: what ``RunConfig.parse(values).plain()`` gives."""
    known = defaults()
    plain: Plain = _lay(known["run"], {key: value for key, value in values.items() if key not in ("method", "branch")})
    for part in ("method", "branch"):
        own = values.get(part)
        plain[part] = _lay(_part_defaults(part, str(own.get("name"))), own) if isinstance(own, dict) else None
    return plain


def setting(plain: Plain) -> str:
    """Names what was run, whatever the seed and however it was computed."""
    return digest(_setting(plain))


def base_setting(plain: Plain) -> str:
    """The setting of the same run without its branch."""
    return setting(plain | {"branch": None})


def departures(plain: Plain, usual: Plain) -> list[str]:
    """How one complete configuration departs from another, as ``key=value``; seed and engine do not count."""
    mine, theirs = (dict(_leaves(_setting(each))) for each in (plain, usual))
    mine |= {key: LATER[key] for key in LATER if key in theirs and key not in mine}  # at the value that names nothing
    return [f"{key}={json.dumps(value)}" for key, value in mine.items() if theirs.get(key, ...) != value]


def engine_departures(plain: Plain, usual: Plain) -> list[str]:
    """The same of the engine alone, as far as it can change a result."""
    return [
        f"engine.{key}={json.dumps(value)}"
        for key, value in decisive(plain)["engine"].items()
        if usual["engine"].get(key, ...) != value
    ]


def _part_defaults(part: str, name: str) -> Plain:
    """All fields of a method or branch; none if nobody knows it. One from outside of the package is asked each time."""
    ours: dict[str, Plain] = defaults()[part]
    if name in ours:
        return ours[name]
    home, registry = {"method": ("s6mod.methods", "methods"), "branch": ("s6mod.branch", "branches")}[part]
    if home not in sys.modules and not plugins.entries:
        return {}  # nobody can have registered it
    registered = getattr(importlib.import_module(home), registry)
    try:
        return dict(registered[name].config_class.parse({"name": name}).plain())
    except ConfigError:  # not known, or not without options
        return {}


@functools.cache
def defaults() -> dict[str, Plain]:
    """``run``: fields of a run but method and branch; ``method`` and ``branch``: by name, all fields of our own."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "s6mod"
    file = folder / f"defaults-{source_digest()}.json"
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        found = _read_classes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("defaults-*.json"):
            if time.time() - old.stat().st_mtime > KEEP_SECONDS:
                old.unlink(missing_ok=True)
        write_whole(file, json.dumps(found))
    except OSError:
        pass  # a folder that cannot be written only costs time
    return found


def _read_classes() -> dict[str, Plain]:
    from s6mod.branch import branches
    from s6mod.methods import methods
    from s6mod.runs.config import RunConfig

    run = RunConfig.parse({"method": {"name": "er"}}).plain()
    own_methods, own_branches = methods.registered(outside=False), branches.registered(outside=False)
    return {
        "run": {key: value for key, value in run.items() if key not in ("method", "branch")},
        "method": {name: part.config_class(name=name).plain() for name, part in own_methods.items()},
        "branch": {name: part.config_class(name=name).plain() for name, part in own_branches.items()},
    }


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
