"""What answers for images: a saved learner, the learner of a run, or an exported file; and answers for image files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s6mod.data.files import refuse_link
from s6mod.data.folder import image_files
from s6mod.data.images import BadImageError, read_image
from s6mod.errors import DataError, InputError
from s6mod.export import onnx_file
from s6mod.files import usable
from s6mod.learner import Learner
from s6mod.run_files import RunFiles
from s6mod.runs.folder import RunFolder

BATCH = 64  # image files that are held at once


@dataclass(frozen=True)
class Model:
    """What predicts, wherever it was learned."""

    classes: tuple[str, ...]  # the label is the position
    image_shape: tuple[int, int, int]
    probabilities: Callable[[NDArray[np.uint8]], NDArray[np.float32]]  # (N, C, H, W) -> (N, num_classes)

    def of_files(self, files: Iterable[Path], skipped: list[str]) -> Iterator[tuple[Path, NDArray[np.float32]]]:
        """Each file with the probabilities (num_classes,) of its image, resized as ``images.RESIZING`` says.

        What is no readable image is passed over; ``skipped`` is told why.
        """
        _, height, width = self.image_shape
        waiting: list[tuple[Path, NDArray[np.uint8]]] = []
        for file in files:
            try:
                waiting.append((file, read_image(file, (height, width), str(file))))
            except BadImageError as error:
                skipped.append(str(error).rpartition("; ")[0] + "; it was passed over")
            if len(waiting) == BATCH:
                yield from self._answers(waiting)
                waiting = []
        if waiting:
            yield from self._answers(waiting)

    def _answers(self, read: list[tuple[Path, NDArray[np.uint8]]]) -> Iterator[tuple[Path, NDArray[np.float32]]]:
        files, images = zip(*read, strict=True)
        return zip(files, self.probabilities(np.stack(images)), strict=True)


def open_model(path: str | Path, device: str = "auto") -> Model:
    """The learner in a run's folder or a folder of its own, on ``device``; or a ``.onnx`` file that was exported."""
    path = usable(path)
    if path.suffix == ".onnx":
        if not path.is_file():
            raise InputError(f"expected a folder or an .onnx file, got no file {path}; check the path")
        run, metadata = onnx_file.opened(path.read_bytes(), str(path))
        return Model(tuple(metadata.classes), metadata.image_shape, lambda images: run(images)[1])
    if path.suffix == ".pt2":  # torch.export.load may unpickle
        raise InputError(
            f"expected a folder or an .onnx file, got {path}, which could run code when opened; export to .onnx, or "
            "give it to torch.export.load if it is your own"
        )
    learner = Learner.load(path, device)
    if learner.image_shape is None or learner.steps == 0:
        raise InputError(f"expected a learner that has learned, got one in {path} that has seen nothing; learn first")
    return Model(
        class_names(learner, path), learner.image_shape, lambda images: np.asarray(learner.predict_proba(images))
    )


def class_names(learner: Learner, folder: Path) -> tuple[str, ...]:
    """The names of a learner's labels: those that the finished run in ``folder`` tells, else its own."""
    run = RunFolder(folder).read_result() if RunFiles(folder).result.exists() else None
    named: Any = (run or {}).get("class_names")
    told = isinstance(named, list) and len(named) == learner.classes.fixed and all(isinstance(n, str) for n in named)
    return tuple(named) if told else learner.classes.texts


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files as they are named, and all images below the folders, by name; links are refused."""
    found: list[Path] = []
    for path in map(usable, paths):
        refuse_link(path)
        if path.is_dir():
            inside = image_files(path)
            if not inside:
                raise DataError(f"expected images below {path}, got none; check the path")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise DataError(f"expected an image file or a folder of them, got no {path}; check the path")
    return found
