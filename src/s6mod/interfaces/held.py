"""What interfaces do with the learner that they hold: name its labels, turn it into bytes and back.

Libraries that pickle get the files of a saved learner, JSON and safetensors, which our own reader checks.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from s6mod.learner import Learner


def whole(label: Any) -> Any:
    """1.0 and True are the class 1, to which they are equal; any other label is itself."""
    is_whole = isinstance(label, float | np.floating) and label.is_integer()
    return int(label) if is_whole or isinstance(label, bool | np.bool_) else label


def packed(learner: Learner) -> dict[str, bytes]:
    """The files of a saved learner by name."""
    with TemporaryDirectory() as folder:
        learner.save(folder)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def unpacked(files: dict[str, bytes], options: dict[str, Any] | None) -> Learner:
    """The learner that ``packed`` took, on the device where it was; ``options``: those that it was made with."""
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return Learner.load(folder, network=(options or {}).get("network"))
