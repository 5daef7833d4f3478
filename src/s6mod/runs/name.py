"""What names a run, by the plain values of its configuration; no torch, so that stored runs are recognised at once.

The names of existing runs and records rest on this: it may not change.
"""

from typing import Any

from s6mod.config import digest

Plain = dict[str, Any]
# Fields that runs of older versions lack, by dotted key: at this value, which does as before, they name nothing.
LATER: Plain = {"average": None, "predict_by": "auto", "predict_among": "all"}
COMPUTED_ALIKE = ("device", "capture", "eval_batch")  # fields of the engine that cannot change a result


def decisive(plain: Plain) -> Plain:
    """The values that can change a result: not what is written, where the data lies and what computes alike."""
    engine = {key: value for key, value in plain["engine"].items() if key not in COMPUTED_ALIKE}
    data = {key: value for key, value in plain["data"].items() if key != "root"}
    told = {key: value for key, value in plain.items() if key != "output"} | {"engine": engine, "data": data}
    return _without_later(told)


def _without_later(tree: Plain, prefix: str = "") -> Plain:
    return {
        key: _without_later(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in tree.items()
        if LATER.get(prefix + key, ...) != value
    }


def run_hash(plain: Plain) -> str:
    """Of the values as they stand, whether or not the present version would write the same fields."""
    return digest(decisive(plain))


def cell(plain: Plain) -> str:
    """The experiment without its seed: method[+branch]/data/memory."""
    branch = f"+{plain['branch']['name']}" if plain["branch"] else ""
    return f"{plain['method']['name']}{branch}/{plain['data']['name']}/{plain['memory_size']}"


def folder_name(of_cell: str, seed: int, digits: str) -> str:
    """A name for its folder or record that a person can read and that no two different runs share."""
    return f"{of_cell.replace('/', '-')}-seed{seed}-{digits}"
