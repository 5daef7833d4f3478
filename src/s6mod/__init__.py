"""Online continual learning with the S6MOD branch.

``Learner`` is a learner on a stream; ``S6MOD`` is the branch alone, for anybody's training loop; ``run`` runs an
experiment and answers with an ``Experiment``. Names are loaded on first use, so that ``import s6mod`` costs nothing and
``s6mod --help`` needs no torch.
"""

from s6mod._version import __version__

TYPE_CHECKING = False  # as in typing, whose import takes a tenth of what the command line takes to start
if TYPE_CHECKING:
    from s6mod.branch import S6MOD
    from s6mod.learner import Learner
    from s6mod.notebook import Experiment, run

__all__ = ["S6MOD", "Experiment", "Learner", "__version__", "run"]

_HOMES = {
    "Learner": "s6mod.learner",
    "S6MOD": "s6mod.branch",
    "run": "s6mod.notebook",
    "Experiment": "s6mod.notebook",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 's6mod' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
