"""What a run ran on: versions, threads, device. Recorded with every run, compared when one is resumed."""

import functools
import hashlib
import inspect
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from s6mod._version import __version__
from s6mod.branch import branches
from s6mod.engine.numerics import NUMERICS
from s6mod.methods import methods
from s6mod.teacher import teachers

PACKAGE = Path(__file__).parents[1]
# Facts that can change the bits of a result; "source" names the package's code.
BITWISE = ("torch", "threads", "cpu_capability", "device", "source")


def describe(device: torch.device) -> dict[str, Any]:
    """Facts about this process and machine, as plain values."""
    facts: dict[str, Any] = {
        "command": shlex.join([Path(sys.argv[0]).stem, *sys.argv[1:]]),
        "s6mod": __version__,
        "source": source_digest(),
        "numerics": NUMERICS,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    if own := own_sources():
        facts["own"] = own
    if device.type == "cuda":
        facts |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return facts


def own_sources() -> dict[str, str]:
    """Digests of the files that parts registered from outside of the package are written in, by name."""
    return {
        f"{registry.kind} {name}": _file_digest(part)
        for registry in (methods, branches, teachers)
        for name, part in registry.registered(outside=True).items()
    }


def _file_digest(part: type) -> str:
    try:
        return hashlib.sha256(Path(inspect.getfile(part)).read_bytes()).hexdigest()[:12]
    except (OSError, TypeError):  # written in a notebook, say
        return "unknown"


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One phrase for each fact that could make a resumed run differ in its last bits."""
    # Of parts from outside of the package, a process may have registered others as well.
    known = then.get("own", {}).keys() & now.get("own", {}).keys()
    pairs = {key: (then.get(key), now.get(key)) for key in BITWISE}
    pairs |= {f"source of {name}": (then["own"][name], now["own"][name]) for name in sorted(known)}
    return [f"{key} was {old}, is {new}" for key, (old, new) in pairs.items() if old != new]


@functools.cache
def source_digest() -> str:
    """Twelve hexadecimal digits that name the package's source as it is installed: the code version of a record."""
    return digest_of({file.relative_to(PACKAGE).as_posix(): file.read_bytes() for file in PACKAGE.rglob("*.py")})


def digest_of(files: Mapping[str, bytes]) -> str:
    """The same of any source: what its Python files hold, by their path in the package."""
    content = hashlib.sha256()
    for path in sorted(files, key=PurePosixPath):  # folder by folder
        content.update(path.encode())
        content.update(files[path])
    return content.hexdigest()[:12]
