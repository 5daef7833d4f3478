"""Writing what predicts to a file, once it answers like the learner."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import ConfigError, InputError
from s6mod.export import onnx_file, torch_file
from s6mod.export.graph import Graph, traceable, twin_of
from s6mod.export.metadata import Metadata, checked_names, class_names, describe
from s6mod.files import usable, write_whole
from s6mod.learner import Learner

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


@ordinary_tensors()
def export(learner: Learner, path: str | Path, classes: Sequence[str] | None = None) -> Exported:
    """Write what predicts in ``learner`` to ``path``, replacing it: ONNX for ``.onnx``, ``torch.export`` for ``.pt2``.

    It takes uint8 images (N, C, H, W) of any number, and gives labels, probabilities and scores, in float32 on a CPU.
    Before it is written it is compared with the learner's scores on images from its memory, and refused if it differs.
    ``classes`` names the labels; by default they are numbers. The learner stays as it is.
    """
    path = usable(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise ConfigError(f"expected a file name that ends in .onnx or .pt2, got {path.name!r}; choose one of them")
    if learner.steps == 0:
        raise InputError("expected learn() before export(), got a learner that has seen nothing; learn first")
    names = class_names(learner) if classes is None else checked_names(classes, len(learner.classes))
    if path.suffix == ".onnx":
        onnx_file.check_packages()
    twin = twin_of(learner)
    graph, images = Graph(twin), _samples(twin)
    expected = graph.expected(images)
    program = graph.traced()
    if path.suffix == ".onnx":
        model = onnx_file.converted(program)
        metadata = describe(twin, names, onnx_file.checksum(model))
        payload = onnx_file.content(model, metadata)
        answer = _by_onnxruntime(payload)
    else:
        plain = torch_file.converted(program)
        metadata = describe(twin, names, torch_file.checksum(plain))
        payload = torch_file.content(plain, metadata)
        answer = _by_torch(payload)
    difference = max(_compared(expected[:size], *answer(images[:size])) for size in (1, len(images)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, payload)
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


def _samples(learner: Learner) -> Tensor:
    """Images of the memory, evenly over it."""
    stored = learner.memory.images[: len(learner.memory)]
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
