"""One that predicts and does not learn: it follows the checkpoints that a writer leaves in a folder."""

import os
import sys
from pathlib import Path
from threading import Event, Thread

from s6mod.engine.checkpoint import STATE
from s6mod.errors import S6modError
from s6mod.serve.shown import shown
from s6mod.serve.state import ServiceFiles, read

PAUSE = 1.0  # seconds between two looks


class Reader:
    """Answers by the latest checkpoint. The folder may be a copy that another program keeps fresh."""

    failure = None  # it has none of a writer's

    def __init__(self, folder: Path, device: str | None) -> None:
        self.files, self._device = ServiceFiles(folder), device
        self.stopping = False
        self.trouble: str | None = None  # why the latest checkpoint was not read
        self._seen = self._mark()
        state = read(self.files.checkpoint, device)
        self.size, self.shown = state.size, shown(state)
        self._end = Event()
        self._thread = Thread(target=self._run, name="reader")

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self.stopping = True
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _mark(self) -> tuple[int, int] | None:
        """What changes when a checkpoint is replaced."""
        try:
            found = os.stat(self.files.checkpoint / STATE)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _run(self) -> None:
        while not self._end.wait(PAUSE):
            mark = self._mark()
            if mark is None or mark == self._seen:
                continue
            try:
                self.shown = shown(read(self.files.checkpoint, self._device))
            except Exception as error:  # half of a copy, little memory: the next look may find it whole
                trouble = str(error) if isinstance(error, S6modError) else f"{type(error).__name__}: {error}"
                if trouble != self.trouble:
                    print(f"no newer checkpoint: {trouble}", file=sys.stderr)
                self.trouble = trouble
            else:
                self._seen, self.trouble = mark, None
