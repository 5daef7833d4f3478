"""The command line, one file a command. Each imports what it needs when it runs, so that ``--help`` answers at once.

This file imports nothing of it: whoever is stopped while the rest is imported ends without a traceback.
"""

import sys


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130; never a traceback."""
    before, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        from s6mod.cli.commands import run  # here, since Ctrl-C may come while it is imported

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sys.unraisablehook = before


def _unraisable(what: "sys.UnraisableHookArgs") -> None:
    """Python passes over a Ctrl-C that finds it in a callback, such as each import has, and would go on."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        import os

        os._exit(130)  # as after a kill, nothing is lost
    sys.__unraisablehook__(what)
