"""What a learner can be made of, and what can be loaded: each refusal is one sentence, before anything is built."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from s6mod.branch import branches
from s6mod.config import merge
from s6mod.engine.checkpoint import Tree
from s6mod.errors import CheckpointError, ConfigError
from s6mod.learner.config import LearnerConfig
from s6mod.learner.own import Own
from s6mod.methods import Method, methods
from s6mod.networks.adapted import misfit


def checked(config: LearnerConfig, own: Own) -> LearnerConfig:
    """The configuration of a learner that can be: with the names of what is brought, and a branch that can grow where
    the learner does."""
    kind = methods[config.method.name]
    if own.network is not None and not takes_modules(kind):
        raise ConfigError(
            f"expected no network for method {config.method.name!r}, whose own has more than a trunk and a head, "
            f"got a {own.names['network']}; take a method such as 'er' or leave the network out"
        )
    for what, brought in own.names.items():
        told = getattr(config, what)
        if told is not None and brought is None:
            raise ConfigError(f"expected the {told} that this learner was made with, got none; give it as {what}=")
        config = config.model_copy(update={what: told or brought})
    if kind.needs_boundaries and config.boundaries == "none":
        raise ConfigError(
            f"expected task boundaries for method {config.method.name!r}, which uses them, got boundaries='none'; "
            "use 'given' and call end_task(), 'on_new_class' or 'drift'"
        )
    check_plug_ins(config)
    if (branch := config.branch) is not None:
        if config.num_classes is None:
            config = config.model_copy(update={"branch": branches[branch.name].growing(branch)})
        else:
            branches[branch.name].check(branch, config.num_classes)
    if config.predict_by not in ("auto", *config.tables):
        raise ConfigError(
            f"expected predict_by to name a score table of the method and its branch, got {config.predict_by!r}; "
            f"choose one of {', '.join(config.tables)}"
        )
    if config.predict_with not in ("auto", *config.all_weights):
        raise ConfigError(
            f"expected predict_with to name weights that are kept, got {config.predict_with!r}; choose one of "
            f"{', '.join(config.all_weights)}, or set average or teacher"
        )
    if config.classes is not None and config.num_classes is not None:
        raise ConfigError("expected num_classes or classes, got both; leave num_classes out")
    return config


def check_plug_ins(config: LearnerConfig) -> None:
    """Refuse a branch or a teacher on a method that has nothing for one to read."""
    for plug_in, chosen in (("branch", config.branch), ("teacher", config.teacher)):
        if chosen is not None and not methods[config.method.name].has_logits:
            raise ConfigError(
                f"expected no {plug_in} on method {config.method.name!r}, which has no logits for one to read, "
                f"got {chosen.name!r}; leave the {plug_in} out or take another method"
            )


def takes_modules(method: type[Method]) -> bool:
    """Whether its ``adapt`` makes a network like its ``make_network`` does: no class has changed that one alone."""
    made, adapted = (next(kind for kind in method.__mro__ if verb in vars(kind)) for verb in ("make_network", "adapt"))
    return issubclass(adapted, made)


def saved_config(
    folder: str | Path, header: dict[str, Any], device: str | torch.device | None, own: Own
) -> LearnerConfig:
    """The configuration of a saved learner, on another ``device`` if one is named; ``own``: given beside it."""
    if "config" not in header:
        raise CheckpointError(
            f"expected a saved learner or run in {folder}, got a run of an older version; run it again"
        )
    elsewhere = {} if device is None else {"engine": {"device": str(device)}}
    config = LearnerConfig.parse(merge(header["config"], elsewhere))
    for what, brought in own.names.items():
        told = getattr(config, what)
        if told is not None and brought is None:
            raise CheckpointError(
                f"expected the {told} that the learner in {folder} was made with, got none; "
                f"use Learner.load({str(folder)!r}, {what}=...)"
            )
        if told is None and brought is not None:
            raise CheckpointError(
                f"expected no {what} for the learner in {folder}, which has its method's own, got a {brought}; "
                "leave it out"
            )
    return config


def check_brought(folder: str | Path, config: LearnerConfig, network: nn.Module | None, state: Tree) -> None:
    """Refuse a module that cannot take over what a saved one held."""
    why = misfit(network, state["peers"]["0"]["network"]) if network is not None and "peers" in state else None
    if why is not None:
        raise CheckpointError(
            f"expected the {config.network} that the learner in {folder} was made with, got a "
            f"{type(network).__name__} {why}; make it as it was"
        )
