"""``s6mod data NAME``: which data set is meant, and getting it ready if it is not."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from s6mod.data.acquire import Ticker, acquire_official, acquire_own
from s6mod.data.catalog import checked_name, default_root, known, load, unknown
from s6mod.data.dataset import Dataset
from s6mod.data.official import OFFICIAL
from s6mod.data.own import is_path, name_of
from s6mod.data.prepared import prepared_file
from s6mod.data.split import Reading
from s6mod.errors import ConfigError
from s6mod.files import expanded


@dataclass(frozen=True)
class Ready:
    """A data set that runs can have."""

    dataset: Dataset
    root: Path  # where it is looked for
    skipped: list[str] = field(default_factory=list)  # unreadable images that were passed over
    advice: str | None = None

    def lines(self) -> list[str]:
        """What it is, where it lies and how to train on it."""
        file = prepared_file(self.root, self.dataset.name)
        place = "" if _is_default(self.root) else f" --data-root {self.root}"
        lines = [f"passed over: {path}" for path in self.skipped]
        lines += [str(self.dataset), *[str(file)] * file.is_file()]
        lines.append(f"train on it: s6mod train --data {self.dataset.name}{place}")
        return [*lines, self.advice] if self.advice else lines


def _is_default(root: Path) -> bool:
    try:
        return root == default_root()
    except ConfigError:  # a user without a home folder has none
        return False


def make_ready(
    what: str, given: Path | None, root: Path, name: str | None, reading: Reading, progress: Ticker
) -> Ready:
    """The data set that ``what`` names, or own data that lies there; prepared first, where that is to be done.

    ``given``: official files of a published one, brought along. ``name``: of own data, unless as its path.
    """
    if what in known:
        _refuse_options_of_own_data(what, given, name, reading)
        return _published(what, given, root, reading.skip_bad, progress)
    if given is not None:
        raise ConfigError(
            f"expected one of {', '.join(known)} with --from, got {what!r}; give the path of your own data alone"
        )
    if is_path(what):
        return _own(expanded(what), root, name, reading, progress)
    if prepared_file(root, what).is_file():
        if name is not None or reading != Reading():
            raise ConfigError(
                f"expected {what} alone, which is prepared, got options to prepare it; give the path of what it was "
                "made of to prepare it anew"
            )
        here = f"this was prepared before; write ./{what} to prepare the one in this folder"
        return Ready(load(what, root), root, advice=here if Path(what).exists() else None)
    if Path(what).exists():
        return _own(Path(what), root, name, reading, progress)
    raise unknown(what, root)


def _refuse_options_of_own_data(what: str, given: Path | None, name: str | None, reading: Reading) -> None:
    if name is not None or reading != Reading(skip_bad=reading.skip_bad):
        raise ConfigError(
            f"expected {what} alone, got options of own data; drop --name, --size, --test-fraction and --split-seed"
        )
    if given is not None and what not in OFFICIAL:
        raise ConfigError(f"expected {what} alone, which is built in, got --from; drop it")


def _published(name: str, given: Path | None, root: Path, skip_bad: bool, progress: Ticker) -> Ready:
    skipped: list[str] = []
    if name in OFFICIAL and (given is not None or not prepared_file(root, name).is_file()):
        place = expanded(given) if given is not None else None
        with _ends_tidily():
            skipped = acquire_official(OFFICIAL[name], root, place, skip_bad, progress)
    return Ready(load(name, root), root, skipped)


def _own(path: Path, root: Path, name: str | None, reading: Reading, progress: Ticker) -> Ready:
    chosen = checked_name(name or name_of(path))
    if chosen in known:
        raise ConfigError(f"expected a name that is free, got {chosen!r}, a published data set; give another --name")
    with _ends_tidily():
        skipped = acquire_own(path, root, chosen, reading, progress)
    return Ready(load(chosen, root), root, skipped)


@contextmanager
def _ends_tidily() -> Iterator[None]:
    """Whoever is told to end, by a scheduler or ``timeout``, first clears away what is half-written."""

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
