"""Writing what predicts to a file, once it answers like the predictor itself."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from s6mod.engine.evaluate import Predictor
from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import ConfigError, InputError
from s6mod.export import onnx_file, torch_file
from s6mod.export.graph import Graph
from s6mod.export.metadata import Metadata
from s6mod.files import why_not, write_whole
from s6mod.memory import ReplayMemory

FORMATS = {".onnx": (onnx_file.packed, onnx_file.session), ".pt2": (torch_file.packed, torch_file.session)}
COMPARED = 64  # images of the memory, at most
TOLERANCE = 1e-4  # of the largest score of an image


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    size: int  # bytes
    metadata: Metadata
    difference: float  # the largest to the learner's scores, as a share of the largest score of an image


def check_format(path: Path) -> None:
    """Refuse at once a file that could not be written at the end."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"expected a file name that ends in .onnx or .pt2, got {path.name!r}; choose one of them")
    if path.suffix == ".onnx":
        for module in ("onnx", "onnxscript", "onnxruntime"):
            onnx_file.needed(module)


@ordinary_tensors()
def write(path: Path, predictor: Predictor, metadata: Metadata) -> Exported:
    """Write a predictor, on the CPU in float32, to ``path``, replacing it.

    Before, it is compared with the predictor's scores on images from its memory, and refused if it differs.
    """
    packed, session = FORMATS[path.suffix]
    images = _samples(predictor.memory)
    expected = predictor(images, metadata.scores)[metadata.scores][:, : len(metadata.classes)]
    with _converting():
        payload, metadata = packed(Graph(predictor, metadata).traced(), metadata)
        run = session(payload)
        answers = [[torch.from_numpy(each) for each in run(images[:size].numpy())] for size in (1, len(images))]
    difference = max(_compared(expected[: len(labels)], labels, scores) for labels, _, scores in answers)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, payload)
    except OSError as error:
        why, todo = why_not(error)
        raise InputError(f"expected to write {len(payload):,} bytes to {path}, but {why}; {todo}") from None
    return Exported(path, len(payload), metadata, difference)


@contextmanager
def _converting() -> Iterator[None]:
    """What torch cannot convert or run is told in one sentence, as a method or branch may be anybody's."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns of packages that nobody needs here
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # of torch about itself
            yield
    except Exception as error:  # torch has many kinds
        why = next(filter(None, str(error).splitlines()), "no reason given")
        raise InputError(
            f"expected a method and a branch that torch.export can trace, got {type(error).__name__}: {why}; "
            "let prepare, network and scores use tensor operations alone, and x.shape[0] instead of len(x)"
        ) from error
    finally:
        log.setLevel(level)


def _samples(memory: ReplayMemory) -> Tensor:
    """Images of the memory, evenly over it."""
    stored = memory.images[: len(memory)]
    return stored[:: -(-len(stored) // COMPARED)].clone()


def _compared(expected: Tensor, labels: Tensor, scores: Tensor) -> float:
    """The largest difference between scores (N, num_classes); refuses one that is too large."""
    barred = expected.isneginf()
    largest = expected.masked_fill(barred, 0).abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    difference = ((scores - expected).masked_fill(barred, 0).abs() / largest).max().item()
    alike = torch.equal(scores.isneginf(), barred) and torch.equal(labels, expected.argmax(1))
    if not (alike and difference <= TOLERANCE):
        what = f"scores that differ by {difference:.1e}" if alike else "other labels"
        raise InputError(
            f"expected an export that answers like the learner on images of its memory, got {what}; nothing was "
            "written: check that its weights are finite, or export to the other format"
        )
    return difference
