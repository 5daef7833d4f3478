"""All commands: importing one registers it."""

import importlib
import pkgutil

import s6mod.cli
from s6mod.cli.app import app, run

for _module in pkgutil.iter_modules(s6mod.cli.__path__):
    importlib.import_module(f"s6mod.cli.{_module.name}")

__all__ = ["app", "run"]
