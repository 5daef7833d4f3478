"""The files of a run's folder, by name: whoever reads or writes one of them asks here. No torch."""

from pathlib import Path


class RunFiles:
    """Where the parts of one run lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.json"  # what is run, written first
        self.stream = folder / "stream.safetensors"  # which sample comes when
        self.records = folder / "records.jsonl"  # losses, figures and accuracies on the way
        self.checkpoint = folder / "checkpoint"  # the latest state: a folder of its own
        self.result = folder / "result.json"  # written last
        self.failure = folder / "failure.txt"  # the traceback of the attempt that failed

    @property
    def begun(self) -> bool:
        """Whether there is a run in the folder, or what is left of one."""
        return self.config.exists() or self.result.exists()
