"""Processes that are forked from this one, with all imports done, so that they are at work at once."""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torture.attack import Broken

LIMIT = 400.0  # seconds after which a command hangs; they take seconds, but machines are shared
ENDINGS = (0, 1, 2)  # exit codes of commands that end by themselves


class Child:
    """A process that does one thing; it leads a session, so that its own children can be found and ended."""

    def __init__(self, act: Callable[[], None], said: Path) -> None:
        self.said = said
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _be(act, said)
        self.code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it is at work."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float) -> int | None:
        """The same after so many seconds, or earlier if it ends."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        return self.code

    def end(self, seconds: float = LIMIT) -> int:
        """Its exit code when it ends by itself, which it must, and without a traceback."""
        code = self.wait(seconds)
        if code is None:
            self.kill()
            raise Broken("hang", f"no end after {seconds:.0f} s; it had said: {self.words()}")
        self.look()
        return code

    def look(self) -> None:
        """Whether it has said a traceback."""
        if "Traceback" in self.words():
            raise Broken("traceback", self.words())

    def words(self) -> str:
        """All that it has said."""
        return self.said.read_text(errors="replace") if self.said.exists() else ""

    def kill(self, among: Callable[[list[int]], list[int]] = lambda pids: pids) -> int:
        """Kill processes of its session, of all that there are those that ``among`` chooses; how many."""
        chosen = among(session(self.pid))
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(chosen)


def session(leader: int) -> list[int]:
    """The processes of a session, its leader first if it is alive."""
    found = [pid for pid, _, theirs in _processes() if theirs == leader]
    return sorted(found, key=lambda pid: (pid != leader, pid))


def family(pid: int) -> list[int]:
    """A process and all that it has started, in whatever session they are."""
    found, processes = [pid], _processes()
    for elder in found:  # which grows meanwhile
        found += [child for child, parent, _ in processes if parent == elder]
    return found


def _processes() -> list[tuple[int, int, int]]:
    """Number, parent and session of every process that is alive."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            state, parent, _, theirs = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                found.append((int(entry), int(parent), int(theirs)))
    return found


def command(*words: object) -> None:
    """``s6mod`` with these words, in this process."""
    from s6mod import cli

    sys.argv = ["s6mod", *map(str, words)]
    cli.main()


def limit_memory(extra: int) -> None:
    """Let this process have so many bytes of addresses more than it has now."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + extra, resource.RLIM_INFINITY))


def _be(act: Callable[[], None], said: Path) -> None:
    """What the forked process does: it never comes back."""
    code = 70
    try:
        os.setsid()
        said.parent.mkdir(parents=True, exist_ok=True)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for the rest of its life
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
        act()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                code = code or 70
        os._exit(code)
