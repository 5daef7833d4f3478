"""W&B: online where there is a login, else offline in the run folder for ``wandb sync``; ``WANDB_MODE`` decides if set.

``WANDB_PROJECT``, ``WANDB_ENTITY`` and the other variables of the library are honoured.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from s6mod.trackers.base import Subject, Tracker

QUIET = {  # what is ours to show and to store, or nobody's
    "silent": True,
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "x_disable_stats": True,
}


class WandB(Tracker):
    """One W&B run, resumed by its id. Offline, each start writes a file with all records in place of the one before."""

    def __init__(self, subject: Subject, run_id: str | None) -> None:
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        self.run_id = run_id or secrets.token_hex(4)
        if mode == "offline":
            _remove_unsent(subject.folder / "wandb", self.run_id)
        self.run = wandb.init(
            id=self.run_id,
            resume="allow",
            reinit="create_new",  # several runs may share a process
            mode=mode,
            dir=subject.folder,
            project=os.environ.get("WANDB_PROJECT", "s6mod"),
            name=subject.name,
            group=subject.cell,
            config={**subject.config, "hash": subject.hash},
            settings=wandb.Settings(**QUIET),
        )
        self.next_step = self.run.step

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``; records of one step share a row."""
        self.run.log(dict(values), step=step)

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``; results go to the summary."""
        self.run.summary.update(dict(values))
        self.run.finish(exit_code=0)

    def close(self) -> None:
        """See ``Tracker``."""
        self.run.finish(exit_code=1)


def _remove_unsent(folder: Path, run_id: str) -> None:
    """Files of earlier starts: what follows holds all that they hold."""
    for part in folder.glob(f"offline-run-*-{run_id}"):
        if not any(part.glob("*.synced")):
            shutil.rmtree(part)
