"""Public records: the result of a run as one small JSON file with a checksum; no checkpoint, no step records.

A record is the run's ``result.json``, without the folders of the machine it ran on, and with one more line at its head:
the SHA-256 of the file without that line. A changed byte is noticed whenever a record is read.
"""

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from s6mod.errors import CheckpointError
from s6mod.files import parse_json, plain_file, write_new, write_whole
from s6mod.run_files import RunFiles
from s6mod.runs.contents import Finished
from s6mod.runs.name import folder_name

FORMAT = 1  # of results that this version reads
ADOPTED = ' "sealed": "when adopted",\n'  # marks a record that came without a checksum
FOLDERS = ("--out", "--data-root", "--store")  # options that name folders of one machine
FILES = ("--data", "--config", "--resume")  # options whose paths keep their last part
# The folders of a path: from a root, a home or a dot, or of data by --set. Names of cells have slashes too.
_PLACE = re.compile(r"(?:(?<![\w.+:/-])(?:~|\.\.?)?/|(?<=data=)(?!\{)|(?<=data\.root=)).*/")
_SEAL = re.compile(r'\A\{\n "sha256": "([0-9a-f]{64})",\n')


class Unsealed(CheckpointError):  # noqa: N818 - a lack, not a fault
    """A record without a checksum."""


def read_result(file: Path, sealed: bool) -> dict[str, Any]:
    """A result without its accuracy matrices, which are most of its bytes; ``sealed``: its checksum must be right."""
    text = _read(file)
    seal = _SEAL.match(text)
    if sealed and seal is None:
        _parse(file, text)  # something else than a record has nothing to seal
        raise Unsealed(f"expected a checksum in {file}, got none; adopt it with: s6mod runs adopt {file}")
    if seal is not None and _sha256(_unsealed(text, seal)) != seal[1]:
        raise CheckpointError(f"expected {file} as it was written, got a changed byte; restore it or export it again")
    return _parse(file, _without_matrices(text))


def read_matrix(path: Path, scores: str | None = None) -> list[list[float]]:
    """The rows of an accuracy matrix of a run folder or record; of one score table (None: the primary one)."""
    file = RunFiles(path).result if path.is_dir() else path
    content = _parse(file, _read(file))
    name = scores or content["primary"]
    rows: list[list[float]] | None = content.get("matrices", {}).get(name)
    if rows is None:
        raise CheckpointError(
            f"expected an accuracy matrix of the score table {name!r}, got none in {file}; run it again"
        )
    return rows


def export(result: Path, folder: Path) -> Path | None:
    """Seal a run's ``result.json`` into ``folder``; None if that record is there already."""
    text = _read(result)
    content = _parse(result, text)
    return _place(_seal(_without_folders(text, content)), content, folder)


def adopt(record: Path, folder: Path) -> Path | None:
    """Take a record made elsewhere into ``folder``; one without a checksum is sealed and marked as such.

    None if that record is there already.
    """
    text = _read(record)
    stays = record.parent.resolve() == folder.resolve()
    if _SEAL.match(text) is None:
        content = _parse(record, text)
        text = _seal("{\n" + ADOPTED + json.dumps(content, indent=1).removeprefix("{\n"))
        if stays:
            write_whole(record, text)
            return record
    else:
        content = read_result(record, sealed=True)
    return None if stays else _place(text, content, folder)


def _place(text: str, content: dict[str, Any], folder: Path) -> Path | None:
    """Write under the run's name; a second result of the same run has the version of its code in its name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = folder_name(content["cell"], content["seed"], content["hash"])
    seal = text.splitlines()[1]
    for path in (folder / f"{name}.json", folder / f"{name}-{content['environment'].get('source', 'unknown')}.json"):
        if write_new(path, text):
            return path
        if path.read_text(encoding="utf-8").splitlines()[1:2] == [seal]:
            return None
    raise CheckpointError(
        f"expected room for a record of {name}, got two others of the same run and code in {folder}; remove one"
    )


def _read(file: Path) -> str:
    try:
        return plain_file(file).read_text(encoding="utf-8")
    except (OSError, ValueError):  # the latter: no text, or no name of a file
        raise CheckpointError(f"expected a readable result, got {file}; restore it or remove it") from None


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        content = parse_json(text)
        version = content["format"]
    except (ValueError, KeyError, TypeError):
        hint = "remove it" if file == RunFiles(file.parent).result else "give run folders and records alone"
        raise CheckpointError(f"expected the result of a run, got something else in {file}; {hint}") from None
    if version != FORMAT:
        raise CheckpointError(
            f"expected a result of format {FORMAT}, got format {version} in {file}; "
            "read it with the s6mod version that wrote it, or run it again"
        )
    try:
        Finished.model_validate(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise CheckpointError(
            f"expected a whole result, got a damaged {file}, see its {where}; restore it or run it again"
        ) from None
    return dict(content)


def _seal(text: str) -> str:
    return '{\n "sha256": "' + _sha256(text) + '",\n' + text.removeprefix("{\n")


def _unsealed(text: str, seal: re.Match[str]) -> str:
    return "{\n" + text[seal.end() :]


def _without_matrices(text: str) -> str:
    """Cut one top-level entry out of a result as it is indented; a long stream has many thousand numbers there."""
    begin = text.find('\n "matrices": ')
    end = text.find('\n "', begin + 1) if begin > 0 else -1
    return text[:begin] + text[end:] if end > 0 else text


def _without_folders(text: str, content: dict[str, Any]) -> str:
    """The result as anybody may see it: where its files lay is nobody's business and no help elsewhere."""
    root = json.dumps(content["config"].get("data", {}).get("root"))
    command = content["environment"].get("command") or ""
    try:
        words, kept = iter(shlex.split(command)), list[str]()
    except ValueError:  # nobody could have typed it
        words, kept = iter(()), []
    for word in words:
        option, equals, value = word.partition("=")
        if option in FILES:
            path = value if equals else next(words, "")
            kept += [option, f"./{Path(path).name}" if "/" in path else path]
        elif option in FOLDERS:
            if not equals:
                next(words, None)
        else:
            kept.append(_PLACE.sub("./", word))
    text = text.replace(f'"root": {root}', '"root": null')
    return text.replace(json.dumps(command), json.dumps(shlex.join(kept)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
