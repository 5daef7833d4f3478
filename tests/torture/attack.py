"""What an attack is, and what a round of one finds out."""

import json
import os
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["lost", "mismatch", "traceback", "hang", "drift"]


class Broken(Exception):  # noqa: N818 - it is a finding
    """What must not happen has happened."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass
class Round:
    """One round: its seed, a folder of its own, what it counts and what it finds broken."""

    seed: int
    folder: Path
    size: int  # how many kills or bad inputs
    counts: Counter[str] = field(default_factory=Counter)
    notes: dict[str, float] = field(default_factory=dict)  # figures that are worth a place in the table
    broken: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._now = os.open(self.folder / "now", os.O_RDWR | os.O_CREAT)

    def now(self, what: object) -> None:
        """Say what is being tried, for whoever finds this round hanging or dead."""
        text = repr(what).encode("utf-8", "backslashreplace")[:20_000]
        os.pwrite(self._now, text, 0)
        os.ftruncate(self._now, len(text))

    def report(self, act: Callable[["Round"], None]) -> str:
        """Do the round; what came of it, as JSON."""
        try:
            act(self)
        except Broken as error:
            self.broken.append((error.kind, str(error)))
        except BaseException as error:
            self.broken.append(("traceback", "".join(traceback.format_exception(error))))
        return json.dumps({"counts": self.counts, "notes": self.notes, "broken": self.broken})


@dataclass(frozen=True)
class Attack:
    """A way to break things."""

    name: str
    act: Callable[[Round], None]
    size: int  # kills or inputs of a round
    share: float = 1.0  # of the time, to that of the others
    short: int = 0  # the size in the short form; 0: not in it
    missing: Callable[[], str | None] = lambda: None  # why it cannot be had on this machine
