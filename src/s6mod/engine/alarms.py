"""What the records of a run say about a branch that has stopped working as meant, told once each.

It looks only at figures that were read for a record anyway: nothing is asked of the device for it.
"""

from typing import Any

PATIENCE = 500  # steps that a condition must hold at every record
TOLD = -1


def raise_alarms(
    figures: dict[str, Any], fixed_patterns: int | None, since: dict[str, int], step: int, before: int
) -> list[str]:
    """Sentences for conditions that have just held for ``PATIENCE`` steps.

    ``since`` belongs to the run and is kept up to date: the step since which each condition holds, or that it was
    told. ``before`` is the step of the record before: a condition that is met for the first time may hold since then.
    """
    met = dict(_conditions(figures, fixed_patterns))
    for name in [name for name, begin in since.items() if begin != TOLD and name not in met]:
        del since[name]
    ripe = []
    for name, sentence in met.items():
        begin = since.setdefault(name, before)
        if begin != TOLD and step - begin >= PATIENCE:
            since[name] = TOLD
            ripe.append(f"{sentence} since step {begin}")
    return ripe


def _conditions(figures: dict[str, Any], fixed_patterns: int | None) -> list[tuple[str, str]]:
    """Name and sentence of each condition that these figures meet, for each network's branch."""
    met = []
    for key in figures:
        if not key.endswith("pattern_load"):
            continue
        net, load = key.removesuffix("pattern_load"), figures[key]
        E = len(load)
        counts = [n for n, seen in zip(figures[f"{net}patterns"], figures[f"{net}seen"], strict=True) if seen]
        if E > 1 and fixed_patterns is None and len(counts) > 1:
            for edge in (1, E):
                if all(n == edge for n in counts):
                    met.append((f"{net}N_k={edge}", f"{net}routing has collapsed: N_k = {edge} of {E} for all classes"))
        unused = [(f"{net}pattern {i}", f"{net}pattern {i} of {E} was chosen at no record") for i in range(1, E + 1)]
        met += [each for each, weight in zip(unused, load, strict=True) if weight == 0]
    return met
