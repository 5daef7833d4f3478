"""Presets: readable YAML, one file for the data sets and one for each method or branch that differs by data set."""

from importlib import resources
from typing import Any

import yaml

from s6mod.config import merge


def preset(method: str, branch: str, data: str, memory_size: int | None) -> dict[str, Any]:
    """The plain values of a run's configuration that the published setting (or our small default) gives.

    ``branch`` may be "none".
    """
    values = merge({"method": {"name": method}, "data": {"name": data}}, _read("datasets").get(data, {}))
    if memory_size is not None:
        values["memory_size"] = memory_size
    parts = {"method": method} | ({"branch": branch} if branch != "none" else {})
    for part, name in parts.items():
        values = merge(values, {part: {"name": name}})
        by_setting = _read(name)
        for setting in (data, f"{data}/{values.get('memory_size')}"):
            values = merge(values, {part: by_setting.get(setting, {})})
    return values


def _read(name: str) -> dict[str, Any]:
    file = resources.files(__name__) / f"{name}.yaml"
    return dict(yaml.safe_load(file.read_text())) if file.is_file() else {}
