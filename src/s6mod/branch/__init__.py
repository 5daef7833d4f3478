"""Branches that sit beside a base method: S6MOD and its two controls.

Importing this package registers them; a branch of your own is a ``Branch`` with ``@branches.register(name)``.
"""

from s6mod.branch.base import Branch, BranchConfig, BranchShape, Tap, Targets, branches
from s6mod.branch.controls import ConfidencePenalty, LabelSmoothing
from s6mod.branch.s6mod import S6MOD, S6MODConfig

__all__ = [
    "S6MOD",
    "Branch",
    "BranchConfig",
    "BranchShape",
    "ConfidencePenalty",
    "LabelSmoothing",
    "S6MODConfig",
    "Tap",
    "Targets",
    "branches",
]
