"""Writing what predicts to a file, once it answers like the predictor itself."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from s6mod.engine.evaluate import Predictor
from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import ConfigError, InputError
from s6mod.export import onnx_file, torch_file
from s6mod.export.graph import Graph, traceable
from s6mod.export.metadata import Metadata
from s6mod.files import why_not, write_whole
from s6mod.memory import ReplayMemory

COMPARED = 64  # images of the memory, at most
TOLERANCE = 1e-4  # of the largest score of an image
Answer = Callable[[Tensor], tuple[Tensor, Tensor]]  # images -> labels, scores


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    size: int  # bytes
    metadata: Metadata
    difference: float  # the largest to the learner's scores, as a share of the largest score of an image


def check_format(path: Path) -> None:
    """Refuse at once a file that could not be written at the end."""
    if path.suffix not in (".onnx", ".pt2"):
        raise ConfigError(f"expected a file name that ends in .onnx or .pt2, got {path.name!r}; choose one of them")
    if path.suffix == ".onnx":
        onnx_file.check_packages()


@ordinary_tensors()
def write(path: Path, predictor: Predictor, metadata: Metadata) -> Exported:
    """Write a predictor, on the CPU in float32, to ``path``, replacing it.

    Before, it is compared with the predictor's scores on images from its memory, and refused if it differs.
    """
    graph = Graph(predictor, metadata.scores, len(metadata.classes), metadata.temperature)
    images = _samples(predictor.memory)
    expected = graph.expected(images)
    program = graph.traced()
    if path.suffix == ".onnx":
        model = onnx_file.converted(program)
        metadata = metadata.model_copy(update={"checksum": onnx_file.checksum(model)})
        payload = onnx_file.content(model, metadata)
        answer = _by_onnxruntime(payload)
    else:
        plain = torch_file.converted(program)
        metadata = metadata.model_copy(update={"checksum": torch_file.checksum(plain)})
        payload = torch_file.content(plain, metadata)
        answer = _by_torch(payload)
    difference = max(_compared(expected[:size], *answer(images[:size])) for size in (1, len(images)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, payload)
    except OSError as error:
        why, todo = why_not(error)
        raise InputError(f"expected to write {len(payload):,} bytes to {path}, but {why}; {todo}") from None
    return Exported(path, len(payload), metadata, difference)


def _by_onnxruntime(payload: bytes) -> Answer:
    run = onnx_file.session(payload)

    def answer(images: Tensor) -> tuple[Tensor, Tensor]:
        labels, _, scores = map(torch.from_numpy, run(images.numpy()))
        return labels, scores

    return answer


def _by_torch(payload: bytes) -> Answer:
    module = torch.export.load(io.BytesIO(payload)).module()  # what we have just written

    def answer(images: Tensor) -> tuple[Tensor, Tensor]:
        with traceable():
            labels, _, scores = module(images)
        return labels, scores

    return answer


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
