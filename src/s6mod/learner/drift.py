"""A boundary where errors become more frequent on the stream: ADWIN (Bifet and Gavalda, 2007), as river has it.

The detector's own state cannot be read. What it was fed can, so it is kept, and the detector is made anew from that.
"""

import importlib
from collections.abc import Iterable
from typing import Any

from s6mod.errors import ConfigError

KEPT = 10_000  # errors that a detector is made anew from, once there are twice as many


def check_package() -> None:
    """Refuse at once what could not be done at the second batch."""
    _adwin()


class Drift:
    """Looks at errors, 1, and hits, 0, of the images that are tested."""

    def __init__(self, errors: Iterable[int] = ()) -> None:
        self._begin(list(errors))

    def _begin(self, errors: list[int]) -> None:
        self.errors = errors  # since the last rise
        self._detector = _adwin()
        for error in errors:
            self._detector.update(error)

    def rose(self, errors: list[int]) -> bool:
        """Whether these show that errors have become more frequent; then the past is forgotten."""
        rise = False
        for error in errors:
            before = self._detector.estimation
            self._detector.update(error)
            rise = rise or (self._detector.drift_detected and self._detector.estimation > before)
        self.errors = self.errors + errors
        if rise or len(self.errors) >= 2 * KEPT:
            self._begin([] if rise else self.errors[-KEPT:])
        return rise


def _adwin() -> Any:
    try:
        return importlib.import_module("river.drift").ADWIN(clock=1)
    except ImportError:
        raise ConfigError(
            "expected river for boundaries='drift', got none installed; run: pip install -e '.[river]'"
        ) from None
