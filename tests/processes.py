"""Commands in real processes, for tests that stop and kill them.

The processes are forked from one that has imported all that a run needs, so that they are at work at once; the workers
of sweeps are forked from the same one.
"""

import multiprocessing
import signal
import sys
from multiprocessing import forkserver

import torch

from s6mod import cli
from s6mod.experiments.launch import imported_once
from s6mod.experiments.worker import run_batch


def preload():
    """Start the process that the others are forked from, if there is none yet."""
    multiprocessing.set_forkserver_preload(imported_once(True, {"digits"}))
    forkserver.ensure_running()


def start(*arguments):
    """The command with these arguments, under way; what it says is part of the test's output."""
    preload()
    process = multiprocessing.get_context("forkserver").Process(target=_command, args=(list(map(str, arguments)),))
    process.start()
    return process


def miss_the_signal(connection, *_):
    """A worker that is asked to stop when its batch has just ended, and so waits for the next: exit code 0 if told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection.send("ready")
    sys.exit(not (connection.poll(20) and connection.recv() is None))


def work_and_tell_imports(connection, batch):
    """A worker with one batch to do, which then sends the names of the modules that it had to import for it."""
    torch.set_num_threads(1)
    before = set(sys.modules)
    run_batch(batch, None, lambda event: None)
    connection.send(sys.modules.keys() - before)


def _command(arguments):
    torch.set_num_threads(1)
    sys.argv = ["s6mod", *arguments]
    cli.main()
