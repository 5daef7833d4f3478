"""TensorBoard: event files in the run folder, so that ``tensorboard --logdir runs`` shows every run."""

from collections.abc import Mapping

import yaml
from torch.utils.tensorboard import SummaryWriter

from s6mod.trackers.base import Subject, Tracker


class TensorBoard(Tracker):
    """Each start writes a file with all records, which makes readers forget the files before it."""

    live = True
    next_step = 0

    def __init__(self, subject: Subject, run_id: str | None) -> None:
        self.run_id = run_id or "tensorboard"
        self.writer = SummaryWriter(str(subject.folder / self.run_id), purge_step=0)
        # Indented: Markdown shows it as it is.
        text = "".join(f"    {line}\n" for line in yaml.safe_dump(subject.config, sort_keys=False).splitlines())
        self.writer.add_text("configuration", text, 0)
        self.writer.flush()

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``; kept as 32-bit floats."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self.record(step, values)
        self.writer.close()

    def close(self) -> None:
        """See ``Tracker``."""
        self.writer.close()
