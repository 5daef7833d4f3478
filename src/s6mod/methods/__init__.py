"""Methods, one file each. Importing this package registers them; a new method is one new file here."""

import importlib
import pkgutil

from s6mod.methods.base import Batch, Losses, Method, MethodConfig, OptimizerConfig, Peer, Plan, Task, methods

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Batch", "Losses", "Method", "MethodConfig", "OptimizerConfig", "Peer", "Plan", "Task", "methods"]
