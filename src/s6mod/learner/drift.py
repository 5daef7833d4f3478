"""A boundary where errors become more frequent on the stream: ADWIN (Bifet and Gavalda, 2007), as river has it.

The detector's own state cannot be read. What it was fed can, so that is kept, and a detector is made anew from it.
"""

import copy
import importlib
from collections.abc import Sequence
from typing import Any

from s6mod.errors import ConfigError

KEPT = 10_000  # errors that a detector is made anew from, once there are twice as many


class Drift:
    """What is known after so many tested images: ``errors``, 1 for each that was wrong and 0 for a hit."""

    def __init__(self, errors: Sequence[int] = ()) -> None:
        self.errors = list(errors)  # since the last rise
        self.rose = False  # whether the latest batch showed that errors have become more frequent
        self._detector = _adwin()
        for error in errors:
            self._detector.update(error)

    def after(self, errors: Sequence[int]) -> "Drift":
        """With a batch more. After a rise the past is forgotten."""
        known, detector, rise = [*self.errors, *errors], copy.deepcopy(self._detector), False
        for error in errors:
            before = detector.estimation
            detector.update(error)
            rise = rise or (detector.drift_detected and detector.estimation > before)
        if rise or len(known) >= 2 * KEPT:
            new = Drift([] if rise else known[-KEPT:])
        else:
            new = copy.copy(self)
            new.errors, new._detector = known, detector
        new.rose = rise
        return new


def _adwin() -> Any:
    try:
        return importlib.import_module("river.drift").ADWIN(clock=1)
    except ImportError:
        raise ConfigError(
            "expected river for boundaries='drift', got none installed; run: pip install -e '.[river]'"
        ) from None
