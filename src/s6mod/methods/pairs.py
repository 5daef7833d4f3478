"""Which methods come as a pair of networks (CCL-DC), and how a pair and its options are made of a method.

Any method that declares ``chain`` and ``chain_batch`` is paired by one call of ``pair``. What a pair does in a step is
said in ``ccldc``.
"""

from copy import copy
from typing import Any, Literal, TypeVar, cast

from pydantic import create_model

from s6mod.config import Config
from s6mod.errors import ConfigError
from s6mod.methods.base import Method, chain_of, methods
from s6mod.methods.ccldc import CCLDC, CollaborationConfig
from s6mod.methods.er import ER
from s6mod.methods.ocm import OCM
from s6mod.methods.onpro import OnPro

C = TypeVar("C", bound=Config)


def pair(method: type[Method]) -> type[Method]:
    """Register a pair of networks that learn by ``method``, under its name with ``-ccldc`` behind it."""
    chain = chain_of(method)
    alone = method.config_class.model_fields["name"].default
    if method.prepare is not Method.prepare:
        raise ConfigError(
            f"expected a method whose network takes pixels as floats in [0, 1], got {alone!r}, which prepares them "
            "otherwise; let its network do so"
        )
    title, name = f"{method.__name__}CCLDC", alone + methods.PAIR
    weights = {"own_weight": chain.own, "views_weight": chain.views, "kd_weight": chain.kd}
    fields: dict[str, Any] = {"name": (Literal[name], name), "collaboration": (CollaborationConfig, ...)}
    members = {
        "__module__": method.__module__,
        "__doc__": f"Two networks that learn by {method.__name__} and from each other.",
        "config_class": starting_from(
            create_model(f"{title}Config", __base__=method.config_class, __doc__=f"Options of {name}.", **fields),
            {**chain.base, "collaboration": weights},
        ),
        "memory_free": method.memory_free | {"net1", "net2"},
        "chain": None,  # a pair is not paired again
    }
    return methods.register(name)(cast(type[Method], type(title, (CCLDC, method), members)))


def starting_from(config: type[C], values: dict[str, Any]) -> type[C]:
    """A configuration like ``config`` whose defaults are these ``values``, branch by branch."""
    validated = config.parse(values)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        field = copy(config.model_fields[name])
        if isinstance(value, dict):
            field.annotation = starting_from(cast(type[Config], field.annotation), value)
            field.default = field.annotation()
        else:
            field.default = getattr(validated, name)
        fields[name] = (field.annotation, field)
    return create_model(config.__name__, __base__=config, __doc__=config.__doc__, **fields)


ERCCLDC, OCMCCLDC, OnProCCLDC = pair(ER), pair(OCM), pair(OnPro)
