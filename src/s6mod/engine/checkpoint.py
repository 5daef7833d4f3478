"""Saving and reading state: one safetensors file for tensors, one JSON file for everything else, never pickle.

The JSON file names the tensor file and its checksum and is replaced last, in one rename: whenever the program is
killed, the folder holds either the old state or the new one, whole. A changed byte in either file is noticed. A state
may also be written beside the steps that follow it: it is copied first, so they do not change it.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from s6mod.errors import CheckpointError, S6modError, shortly
from s6mod.files import plain_file, read_json, why_not, write_whole
from s6mod.locks import alone_in

FORMAT = 1
STATE = "state.json"
READINGS = 20  # of a state that is replaced each time while it is read, before that is called damage
Tree = dict[str, Any]
PARTS = {"format", "header", "tensors", "sha256", "tree"}
_TENSORS = re.compile(r"state-[0-9a-f]{16}\.safetensors")
_OURS = re.compile(_TENSORS.pattern + r"|\.state.*\.[0-9a-f]+\.part")


def has_state(folder: Path) -> bool:
    """Whether a state was saved there."""
    return (folder / STATE).exists()


@dataclass(frozen=True)
class Snapshot:
    """A state at one moment, on the host; whatever changes afterwards does not change it."""

    tensors: dict[str, Tensor]
    plain: Tree
    header: dict[str, Any]

    @classmethod
    def of(cls, tree: Tree, header: dict[str, Any]) -> "Snapshot":
        """Of nested dicts whose leaves are tensors or plain values; ``header`` says what they belong to."""
        tensors: dict[str, Tensor] = {}
        plain = _split(tree, "", tensors)
        return cls(tensors, deepcopy(plain), deepcopy(header))

    def tree(self) -> Tree:
        """What it was taken of."""
        return _join(self.plain, self.tensors)

    def write(self, folder: Path) -> None:
        """Replace the state in ``folder``, if there is one."""
        payload = save(self.tensors)
        checksum = hashlib.sha256(payload).hexdigest()
        name = f"state-{checksum[:16]}.safetensors"
        content = {"format": FORMAT, "header": self.header, "tensors": name, "sha256": checksum, "tree": self.plain}
        text = json.dumps({"digest": _digest(content), **content}, indent=1)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with alone_in(folder):  # or another writer would take our files for what an earlier state left
                _replace(folder, name, payload, text)
        except OSError as error:
            why, todo = why_not(error)
            rest = "the state saved before is still whole" if _tensor_file(folder) else "nothing was saved"
            raise CheckpointError(
                f"expected to save {len(payload):,} bytes in {folder}, but {why}; {rest}; {todo}"
            ) from None


_threads = ThreadPoolExecutor(2, "checkpoint")  # of all writers; they end before the program does


def _renew_threads() -> None:
    global _threads
    _threads = ThreadPoolExecutor(2, "checkpoint")


os.register_at_fork(after_in_child=_renew_threads)  # threads are not forked, though the count of idle ones would be


class StateWriter:
    """Writes snapshots to one folder while other work goes on, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pending: Future[None] | None = None

    def write(self, snapshot: Snapshot) -> None:
        """Begin once the one before is on disk."""
        self.wait()
        self._pending = _threads.submit(snapshot.write, self.folder)

    def wait(self) -> None:
        """Until all is on disk. A failure is told here."""
        try:
            if self._pending is not None:
                self._pending.result()
        finally:
            self._pending = None


def read_state(folder: Path) -> tuple[Tree, dict[str, Any]]:
    """The tree and header of the snapshot that was written there."""
    for _ in range(READINGS):
        content = _read_content(folder)
        file = folder / str(content["tensors"])
        try:
            if not _TENSORS.fullmatch(file.name) or file.parent != folder:  # another's file
                raise ValueError
            payload = plain_file(file).read_bytes()
            if hashlib.sha256(payload).hexdigest() != content["sha256"]:
                raise ValueError
            return _join(content["tree"], load(payload)), content["header"]
        except (OSError, ValueError, SafetensorError, KeyError, TypeError, AttributeError):
            if _tensor_file(folder) == content["tensors"]:  # else the state has just been replaced
                break
    raise CheckpointError(f"expected the tensors as they were saved, got a damaged or missing {file}; use another copy")


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Take a state that was read there into its objects; one that was edited and does not fit is told as such."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        if isinstance(error, S6modError | torch.OutOfMemoryError):
            raise
        raise CheckpointError(
            f"expected a state as it was saved, got one in {folder} that does not fit its configuration "
            f"({shortly(error)}); use another copy"
        ) from error


def _read_content(folder: Path) -> dict[str, Any]:
    """What the JSON file holds."""
    try:
        content: dict[str, Any] = read_json(folder / STATE)
        declared = content.pop("digest")
        intact = declared == _digest(content) and (content.get("format") != FORMAT or content.keys() >= PARTS)
    except FileNotFoundError:
        raise CheckpointError(f"expected a saved state in {folder}, got no {STATE}; check the path") from None
    except NotADirectoryError:
        raise CheckpointError(
            f"expected a folder with a saved state, got the file {folder}; a record of a run holds no network"
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        intact = False
    if not intact:
        raise CheckpointError(f"expected the state as it was saved, got a damaged {folder / STATE}; use another copy")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"expected a state of format {FORMAT}, got format {content.get('format')} in {folder}; "
            "use the s6mod version that wrote it"
        )
    return content


def _replace(folder: Path, name: str, payload: bytes, text: str) -> None:
    """The files of a new state in the place of those of the old one."""
    try:
        write_whole(folder / name, payload)
        write_whole(folder / STATE, text)
    except OSError:
        if _tensor_file(folder) != name:
            (folder / name).unlink(missing_ok=True)
        raise
    # What an earlier state or a killed process left; the pattern matches names that only we give.
    for stale in folder.iterdir():
        if stale.name != name and _OURS.fullmatch(stale.name):
            with suppress(OSError):
                stale.unlink()


def _tensor_file(folder: Path) -> str | None:
    """The tensor file that the state in a folder names, if there is a state."""
    try:
        return str(read_json(folder / STATE)["tensors"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _split(tree: Tree, prefix: str, tensors: dict[str, Tensor]) -> Tree:
    plain: Tree = {}
    for key, value in tree.items():
        if isinstance(value, Tensor):
            # A copy: safetensors refuses tensors that share storage or are not contiguous (channels-last).
            tensors[prefix + key] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            plain[key] = {"$tensor": prefix + key}
        elif isinstance(value, dict):
            plain[key] = _split(value, f"{prefix}{key}/", tensors)
        else:
            plain[key] = value
    return plain


def _join(plain: Tree, tensors: dict[str, Tensor]) -> Tree:
    tree: Tree = {}
    for key, value in plain.items():
        if isinstance(value, dict):
            tree[key] = tensors[value["$tensor"]] if "$tensor" in value else _join(value, tensors)
        else:
            tree[key] = value
    return tree


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
