"""The workers of a study on this machine, as processes. Others may work on the same study at the same time."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

import torch

from s6mod.allocator import keep_freed_memory
from s6mod.config import merge
from s6mod.registry import Brought
from s6mod.runs.execute import Interrupted, stopping_politely
from s6mod.tuning.config import Tuning
from s6mod.tuning.study import Worker


def launch(tuning: Tuning, devices: Sequence[str], threads: int, say: Callable[[str], None]) -> int | None:
    """Let one worker on each device work until the study has its trials; the signal that stopped them, if one did."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # torch is imported once, not once a worker
    workers: dict[Connection, ForkServerProcess] = {}
    try:
        with stopping_politely() as request:
            for device in devices:
                ours, theirs = context.Pipe(duplex=False)
                there = replace(tuning, elsewhere=merge(tuning.elsewhere, {"engine": {"device": device}}))
                process = context.Process(target=_work, args=(theirs, there, threads, Brought.here()), daemon=True)
                process.start()
                theirs.close()
                workers[ours] = process
            listening = list(workers)
            told = False
            while listening:
                if request.number is not None and not told:
                    say("stopping: each run saves its state")
                    told = True
                    for process in workers.values():
                        process.terminate()
                for connection in wait(listening, timeout=0.2):
                    assert isinstance(connection, Connection)
                    try:
                        text = connection.recv()
                    except (EOFError, OSError):
                        listening.remove(connection)
                        text = _last_word(workers[connection]) if not told else ""
                    if text:
                        say(text)
        return request.number
    finally:
        for connection, process in workers.items():
            connection.close()
            process.join()


def _last_word(process: ForkServerProcess) -> str:
    process.join()
    if not process.exitcode:
        return ""
    return f"a worker ended with code {process.exitcode}; its trial goes back to the queue; see whether memory ran out"


def _work(connection: Connection, tuning: Tuning, threads: int, own: Brought) -> None:
    """One worker; ``own``: parts that its runs may need, imported by now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the whole group; ours is told by its parent
    keep_freed_memory()
    torch.set_num_threads(threads)

    def tell(text: str) -> None:
        try:
            connection.send(text)
        except (BrokenPipeError, ConnectionResetError):  # nobody is there any more
            signal.raise_signal(signal.SIGTERM)

    with contextlib.suppress(Interrupted):
        Worker(tuning, tell).work()
