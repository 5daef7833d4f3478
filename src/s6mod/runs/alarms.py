"""What a run says about a branch that has stopped working as meant, told once each.

A branch knows what is worrying in its figures; here is for how long it must be so. Only figures that were read for a
record anyway are looked at: nothing is asked of the device for it.
"""

from collections.abc import Sequence
from typing import Any

from s6mod.branch import Branch

PATIENCE = 500  # steps that a condition must hold at every record
TOLD = -1


def conditions(branches: Sequence[Branch | None], figures: dict[str, Any]) -> dict[str, str]:
    """What the branch of each network says to ``Learner.figures``, where several have their networks' names before."""
    met: dict[str, str] = {}
    for number, branch in enumerate(branches, start=1):
        if branch is not None:
            net = f"net{number}/" if len(branches) > 1 else ""
            own = {name.removeprefix(net): value for name, value in figures.items() if name.startswith(net)}
            met |= {net + name: net + sentence for name, sentence in branch.alarms(own).items()}
    return met


def raise_alarms(met: dict[str, str], since: dict[str, int], step: int, before: int) -> list[str]:
    """Sentences for conditions that have just held for ``PATIENCE`` steps.

    ``since`` belongs to the run and is kept up to date: the step since which each condition holds, or that it was
    told. ``before`` is the step of the record before: a condition that is met for the first time may hold since then.
    """
    for name in [name for name, begin in since.items() if begin != TOLD and name not in met]:
        del since[name]
    ripe = []
    for name, sentence in met.items():
        begin = since.setdefault(name, before)
        if begin != TOLD and step - begin >= PATIENCE:
            since[name] = TOLD
            ripe.append(f"{sentence} since step {begin}")
    return ripe
