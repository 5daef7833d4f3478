"""A learner as bytes, for libraries that pickle: they get JSON and safetensors, which our own reader checks."""

from pathlib import Path
from tempfile import TemporaryDirectory

from s6mod.learner import Learner


def packed(learner: Learner) -> dict[str, bytes]:
    """The files of a saved learner by name."""
    with TemporaryDirectory() as folder:
        learner.save(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def unpacked(files: dict[str, bytes]) -> Learner:
    """The learner that ``packed`` took, on the device where it was."""
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return Learner.load(folder)
