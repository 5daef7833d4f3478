"""What names a run, by the plain values of its configuration.

The names of existing runs and records rest on this: it may not change. A field that is added is listed in ``LATER``.
One that is removed is listed in ``s6mod.retired`` and goes on counting with the value that it had.
"""

from typing import Any

from s6mod.branch import branches
from s6mod.config import digest, merge, retired_in
from s6mod.errors import ConfigError
from s6mod.methods import methods
from s6mod.registry import NamedConfig, Registry
from s6mod.teacher import teachers

Plain = dict[str, Any]
# Parts of a configuration, each with fields by its name.
PARTS: dict[str, Registry[Any]] = {"method": methods, "branch": branches, "teacher": teachers}
COMPUTED_ALIKE = ("device", "capture", "eval_batch")  # fields of the engine that cannot change a result
# Fields that are younger than the first records, each with its default: at that value they are no part of a name.
LATER: Plain = {
    "teacher": None,
    "network": None,
    "optimizer": None,
    "average": None,
    "updates": 1,
    "classes": None,
    "predict_with": "auto",
    "predict_by": "auto",
    "predict_among": "all",
    "publish_every": None,
    "publish_seconds": None,
    "test_then_train": False,
    "branch.frame": "simplex",
    "data.held_out": 0.0,
    "engine.kernels": "auto",
    "method.augment.crop_probability": 1.0,
    "method.optimizer.momentum": 0.9,
}


def decisive(plain: Plain) -> Plain:
    """The values that can change a result: not what is written, where the data lies and what computes alike."""
    engine = {key: value for key, value in plain["engine"].items() if key not in COMPUTED_ALIKE}
    data = {key: value for key, value in plain["data"].items() if key != "root"}
    return {key: value for key, value in plain.items() if key != "output"} | {"engine": engine, "data": data}


def run_hash(plain: Plain) -> str:
    """Of the values as they stand, whether or not the present version would write the same fields."""
    return digest(_without_later(_with_retired(decisive(plain))))


def config_class(part: str, name: str) -> type[NamedConfig] | None:
    """Of a method, branch or teacher; None if nobody knows it."""
    try:
        kind: type[NamedConfig] = PARTS[part][name].config_class
    except ConfigError:
        return None
    return kind


def _with_retired(plain: Plain) -> Plain:
    """The values with those that are constants by now."""
    named = {part: own for part in PARTS if isinstance(own := plain.get(part), dict)}
    classes = {part: config_class(part, str(own.get("name"))) for part, own in named.items()}
    return plain | {part: merge(retired_in(kind), named[part]) for part, kind in classes.items() if kind is not None}


def _without_later(tree: Plain, prefix: str = "") -> Plain:
    """The values without those that ``LATER`` lists and that have their default."""
    return {
        key: _without_later(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in tree.items()
        if prefix + key not in LATER or LATER[prefix + key] != value
    }


def cell(plain: Plain) -> str:
    """The experiment without its seed: method[+branch][+teacher]/data/memory."""
    learner = "+".join(str(plain[part]["name"]) for part in PARTS if plain.get(part))
    return f"{learner}/{plain['data']['name']}/{plain['memory_size']}"


def folder_name(of_cell: str, seed: int, digits: str) -> str:
    """A name for its folder or record that a person can read and that no two different runs share."""
    return f"{of_cell.replace('/', '-')}-seed{seed}-{digits}"
