"""One that predicts and does not learn: it follows the checkpoints that a writer leaves in a folder."""

import os
import sys
from pathlib import Path

from s6mod.engine.checkpoint import STATE
from s6mod.serve.service import Service, shortly
from s6mod.serve.settings import Limits
from s6mod.serve.shown import shown
from s6mod.serve.state import ServiceFiles, read

PAUSE = 1.0  # seconds between two looks


class Reader(Service):
    """Answers by the latest checkpoint. The folder may be a copy that another program keeps fresh."""

    role = "reader"

    def __init__(self, folder: Path, device: str | None, limits: Limits) -> None:
        files = ServiceFiles(folder)
        self._device, self._seen = device, _mark(files.checkpoint)
        super().__init__(files, read(files.checkpoint, device), limits, kept=False)

    def _run(self) -> None:
        while not self._wake.wait(PAUSE):
            mark = _mark(self.files.checkpoint)
            if mark is None or mark == self._seen:
                continue
            try:
                self.shown = shown(read(self.files.checkpoint, self._device))
            except Exception as error:  # half of a copy, little memory: the next look may find it whole
                trouble = shortly(error)
                if trouble != self.trouble:
                    print(f"no newer checkpoint: {trouble}", file=sys.stderr)
                self.trouble = trouble
            else:
                self._seen, self.trouble = mark, None


def _mark(checkpoint: Path) -> tuple[int, int] | None:
    """What changes when a checkpoint is replaced."""
    try:
        found = os.stat(checkpoint / STATE)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
