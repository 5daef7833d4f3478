"""Configuration keys that are no more, each with the value that it always has now.

Stored configurations still hold them. Whoever reads one drops such a key at its value and refuses any other. A run's
hash goes on counting it, so that no run changes its name. Keys stand here by the class that had them; classes made from
it had them too.
"""

from collections.abc import Mapping
from typing import Any

from s6mod.errors import ConfigError

Plain = dict[str, Any]
_CROP: Plain = {"ratio": [3 / 4, 4 / 3], "attempts": 10}
_JITTER: Plain = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
RETIRED: dict[str, Plain] = {
    "KorniaAugmentConfig": _CROP | _JITTER,
    "ChainCropConfig": _CROP | _JITTER | {"jitter_probability": 0.0, "grey_probability": 0.0},
    "TransformLayersConfig": _CROP | {"crop": True},
    "ContrastiveConfig": {"first_scale": 1.0, "epsilon": 1e-8},
    "FeedbackConfig": {"base_mix": 0.6, "pair_beta": 0.4},
    "OnProConfig": {"per_class": 7},
    "MOSEConfig": {"per_class": 7, "cat_weight": 2.0},
    "S6MODConfig": {"conv_kernel": 3, "dt_min": 1e-3, "dt_max": 1e-1},
}


def keys_of(kind: type) -> Plain:
    """The retired keys of a configuration class of this package, or of one that is made from such a class."""
    bases = [base.__name__ for base in reversed(kind.__mro__) if base.__module__.startswith("s6mod.")]
    return {key: value for base in bases for key, value in RETIRED.get(base, {}).items()}


def without(values: Mapping[str, Any], tree: Plain, prefix: str = "") -> Plain:
    """``values`` without the retired keys of ``tree``; ConfigError if one of them has another value than there."""
    kept = {}
    for key, value in values.items():
        if key not in tree:
            kept[key] = value
        elif isinstance(tree[key], dict):
            kept[key] = without(value, tree[key], f"{prefix}{key}.") if isinstance(value, Mapping) else value
        elif not _same(value, tree[key]):
            raise ConfigError(
                f"expected no {prefix + key!r}, which was retired, got {value!r}; "
                f"leave it out, its value is always {tree[key]!r}"
            )
    return kept


def _same(value: Any, old: Any) -> bool:
    if isinstance(value, bool) != isinstance(old, bool):
        return False
    return bool((list(value) if isinstance(value, tuple) else value) == old)
