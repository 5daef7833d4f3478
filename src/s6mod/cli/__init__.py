"""The command line, one file a command. Each imports what it needs when it runs, so that ``--help`` answers at once."""

import importlib
import pkgutil

from s6mod.cli.app import app, main

for _module in pkgutil.iter_modules(__path__):  # importing a command registers it
    if _module.name != "__main__":
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["app", "main"]
