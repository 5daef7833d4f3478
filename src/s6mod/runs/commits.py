"""Which commit has the source that a run names by its digest, from the git history of the package.

Where there is no git, or the package is not part of a checkout, there is no history and nothing is known.
"""

import functools
import io
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from s6mod.runs.environment import PACKAGE, digest_of

FILE = "commits.json"  # lies among records, is none, and has what is known of theirs


class Commit(NamedTuple):
    """One commit."""

    commit: str  # the first ten digits of its hash
    date: str


def commits(package: Path = PACKAGE) -> dict[str, Commit]:
    """By digest, the first commit that has such a source."""
    try:
        log = _git(package, "log", "--full-history", "--format=%H %cs", "--", ".").decode()
    except (OSError, subprocess.CalledProcessError):
        return {}
    entries = [line.split() for line in log.splitlines()]  # newest first; those alone that changed the package
    trees = [_tree(package, commit) for commit, _ in entries]
    contents = _contents(package, sorted({blob for tree in trees for blob in tree.values()}))
    return {
        digest_of({path: contents[blob] for path, blob in tree.items()}): Commit(commit[:10], date)
        for (commit, date), tree in zip(entries, trees, strict=True)
    }


def uncommitted(digests: Iterable[str]) -> int:
    """How many of these no commit has; 0 where nothing is known."""
    known = _known()
    return sum(digest not in known for digest in digests) if known else 0


@functools.cache
def _known() -> dict[str, Commit]:
    """A walk through the history takes a second: a process takes it once."""
    return commits()


def _tree(package: Path, commit: str) -> dict[str, str]:
    """The blobs of the Python files below the package, by their path in it."""
    listed = _git(package, "ls-tree", "-r", "-z", commit).decode().split("\0")[:-1]
    entries = (entry.split("\t", 1) for entry in listed)  # mode, kind and blob; path
    return {path: about.split()[2] for about, path in entries if path.endswith(".py")}


def _contents(package: Path, blobs: list[str]) -> dict[str, bytes]:
    answer = io.BytesIO(_git(package, "cat-file", "--batch", asked="".join(f"{blob}\n" for blob in blobs)))
    contents = {}
    for blob in blobs:
        size = int(answer.readline().split()[2])
        contents[blob] = answer.read(size)
        answer.readline()
    return contents


def _git(package: Path, *words: str, asked: str = "") -> bytes:
    command = ["git", *words]  # no shell reads the words, and they are ours or what git gave
    return subprocess.run(command, cwd=package, input=asked.encode(), capture_output=True, check=True).stdout  # noqa: S603
