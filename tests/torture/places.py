"""Places where things go wrong: two containers on one volume, small disks, little memory."""

import ctypes
import os
import shutil
import signal
import subprocess
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from s6mod.files import write_new, write_whole
from torture.attack import Broken, Round
from torture.child import ENDINGS, Child, limit_memory
from torture.kills import Victim, to_the_end
from torture.victims import Adopt, Data, Save, Training

CRASHES = (signal.SIGSEGV, signal.SIGABRT)  # of torch's own code where no memory is left
NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x00020000, 0x10000000, 0x20000000  # of unshare(2)


def _unshare(flags: int) -> None:
    """Leave namespaces of this process; without rights, with a user namespace in which there are some."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if libc.unshare(flags | NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _tried(act: Callable[[], None]) -> bool:
    """Whether a process of its own can do it."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def no_namespaces() -> str | None:
    """Why there are no pid namespaces."""
    return None if _tried(lambda: _unshare(NEW_PIDS)) else "no pid namespaces here"


def no_mounts() -> str | None:
    """Why no small disk can be had."""
    return None if _tried(lambda: _small("/mnt", "64k")) else "no file system may be mounted here"


def _small(place: Path | str, size: str, again: bool = False) -> None:
    if not again:
        _unshare(NEW_MOUNTS)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
    options = f"remount,size={size}" if again else f"size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, capture_output=True)


def _as_first(act: Callable[[], None]) -> None:
    """Do it as process 1 of a pid namespace."""
    _unshare(NEW_PIDS)
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            assert os.getpid() == 1
            act()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 70
        os._exit(code)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def two_namespaces(round: Round) -> None:
    """Two processes that are both number 1 write one file, prepare one data set and train in one folder."""
    folder = round.folder

    def write(mark: str) -> None:
        for number in range(round.size):
            write_whole(folder / "shared", mark * 5000)
            write_new(folder / f"new-{number}", mark * 100)
            found = (folder / "shared").read_text()
            assert found in ("a" * 5000, "b" * 5000), "a torn read"

    _both(folder, lambda: write("a"), lambda: write("b"))
    round.counts["inputs"] += 2 * round.size
    for number in range(round.size):
        if (folder / f"new-{number}").read_text() not in ("a" * 100, "b" * 100):
            raise Broken("mismatch", f"file new-{number} is nobody's")
    left = [file.name for file in folder.glob(".*.part")]
    if left:
        raise Broken("lost", f"files were left aside: {left}")

    for victim in (Data(), Adopt(), Training()):
        straight, shared = folder / "straight", folder / "both"
        for place in (straight, shared):
            place.mkdir()
            victim.prepare(place, Random(round.seed))
        to_the_end(victim, straight)
        go = partial(victim.go, shared)
        codes = _both(folder, go, go, (0, 2))
        if 0 not in codes or (codes != [0, 0] and not isinstance(victim, Training)):
            raise Broken("lost", f"{type(victim).__name__}: of two, both must end well, or one train: {codes}")
        if victim.bits(shared) != victim.bits(straight):
            raise Broken("mismatch", f"{type(victim).__name__} of two processes has other bits")
        for place in (straight, shared):
            shutil.rmtree(place)


def _both(folder: Path, one: Callable[[], None], other: Callable[[], None], codes: tuple[int, ...] = (0,)) -> list[int]:
    children = [Child(partial(_as_first, act), folder / f"said-{n}") for n, act in enumerate((one, other))]
    found = [child.end() for child in children]
    if not set(found) <= set(codes):
        raise Broken("lost", f"two at once ended with {found}: {[child.words() for child in children]}")
    return found


def small_disk(round: Round) -> None:
    """A disk that is full in the middle; with more room the same goes on, to the same bits."""
    place = round.folder / "disk"
    place.mkdir()
    _small(place, "64m")
    for _ in range(round.size):
        victim: Victim = round.random.choice((Training, Save, Data, Adopt))()
        straight, beaten = round.folder / "straight", place / "beaten"
        for folder in (straight, beaten):
            folder.mkdir()
            victim.prepare(folder, Random(round.seed))
        to_the_end(victim, straight)
        used = sum(file.stat().st_blocks * 512 for file in beaten.rglob("*"))
        need = sum(file.stat().st_blocks * 512 for file in straight.rglob("*"))
        room = used + 8192 + round.random.randrange(max(4096, int(1.5 * (need - used))))
        round.now({"victim": type(victim).__name__, "room": room})
        _small(place, f"{room // 1024}k", again=True)
        _go_badly(partial(victim.go, beaten), round)
        victim.check(beaten)
        _small(place, "64m", again=True)
        _go_on(victim, beaten, straight)


def little_memory(round: Round) -> None:
    """Memory that ends in the middle; without the limit the same goes on, to the same bits."""
    for _ in range(round.size):
        victim: Victim = round.random.choice((Training, Save, Data, Adopt))()
        straight, beaten = round.folder / "straight", round.folder / "beaten"
        for folder in (straight, beaten):
            folder.mkdir()
            victim.prepare(folder, Random(round.seed))
        to_the_end(victim, straight)
        extra = int(2 ** round.random.uniform(23, 28))  # the stack of one thread at least, or Python itself breaks
        round.now({"victim": type(victim).__name__, "extra": extra})
        _go_badly(partial(_limited, extra, victim, beaten), round, CRASHES)
        victim.check(beaten)
        _go_on(victim, beaten, straight)


def _limited(extra: int, victim: Victim, folder: Path) -> None:
    limit_memory(extra)
    victim.go(folder)


def _go_badly(act: Callable[[], None], round: Round, crashes: tuple[int, ...] = ()) -> None:
    """It ends well, or with one sentence; or by one of these signals, which then is a kill like others."""
    child = Child(act, round.folder / "said")
    code = child.end()
    round.counts["inputs"] += 1
    round.counts["refused"] += code > 0
    round.counts["kills"] += -code in crashes
    if code not in ENDINGS and -code not in crashes:
        raise Broken("traceback", f"it ended with {code}: {child.words()}")


def _go_on(victim: Victim, beaten: Path, straight: Path) -> None:
    to_the_end(victim, beaten)
    if victim.bits(beaten) != victim.bits(straight):
        raise Broken("mismatch", f"{type(victim).__name__} went on to other bits")
    for folder in (beaten, straight):
        shutil.rmtree(folder)
