"""The command line, one file a command. Each imports what it needs when it runs, so that ``--help`` answers at once.

This file imports nothing of it: whoever is stopped while the rest is imported ends without a traceback.
"""

import sys


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2, Ctrl-C is exit code 130; never a traceback."""
    try:
        import signal  # here, as all else, since Ctrl-C may come while it is imported

        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual:
            signal.signal(signal.SIGINT, _interrupted)
        try:
            from s6mod.cli.commands import run

            run()
        finally:
            if usual:
                signal.signal(signal.SIGINT, signal.default_int_handler)
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupted(*_: object) -> None:
    """Within an import it ends at once: C code that imports may pass over an exception, or find a module in pieces."""
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            import os

            os._exit(130)
        frame = caller
    raise KeyboardInterrupt
