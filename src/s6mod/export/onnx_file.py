"""ONNX: a traced program as the bytes of a file, and such a file opened in onnxruntime.

The packages of the extra ``export`` are imported when they are needed.
"""

import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from s6mod.errors import ConfigError, DataError
from s6mod.export.graph import OUTPUTS, Run
from s6mod.export.metadata import KEY, Metadata
from s6mod.files import parse_json

OPSET = 20


def needed(module: str) -> Any:
    """A package of the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(f"expected {module} for ONNX, got none installed; run: pip install -e '.[export]'") from None


def packed(program: ExportedProgram, metadata: Metadata) -> tuple[bytes, Metadata]:
    """The bytes of the file, and its metadata with the checksum: they stand beside the graph."""
    converted = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=OPSET,
        input_names=["images"],
        output_names=list(OUTPUTS),
        dynamic_shapes={"images": {0: "batch"}},
        custom_translation_table=_translations(),
        verbose=False,
    )
    assert converted is not None
    model = converted.model_proto
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.initializer, *model.graph.input):
        part.ClearField("metadata_props")  # which may hold paths of this machine
    metadata = metadata.model_copy(update={"checksum": checksum(model)})
    needed("onnx.helper").set_model_props(model, {KEY: metadata.model_dump_json()})
    return model.SerializeToString(deterministic=True), metadata


def checksum(model: Any) -> str:
    """SHA-256 of the graph of a ``ModelProto``."""
    return hashlib.sha256(model.graph.SerializeToString(deterministic=True)).hexdigest()


def session(payload: bytes) -> Run:
    """What answers by a file, in onnxruntime on the CPU."""
    made = needed("onnxruntime").InferenceSession(payload, providers=["CPUExecutionProvider"])
    return lambda images: list(made.run(OUTPUTS, {"images": images}))


def opened(payload: bytes, where: str) -> tuple[Run, Metadata]:
    """A file that ``packed`` made, checked."""
    try:
        model = needed("onnx").load_from_string(payload)
        told = {entry.key: entry.value for entry in model.metadata_props}
        metadata = Metadata.parse(parse_json(told[KEY]))
        intact = metadata.checksum == checksum(model)
    except ConfigError:
        raise
    except Exception:  # of protobuf and of JSON; a file may hold anything
        raise DataError(f"expected a file that s6mod export wrote, got {where}; export the learner anew") from None
    if not intact:
        raise DataError(f"expected the graph as it was written, got a damaged {where}; use another copy")
    return session(payload), metadata


def _translations() -> dict[Any, Callable[..., Any]]:
    """What torch does not convert by itself: distances to class means, and the order of the gate's logits."""
    op = needed("onnxscript").opset20

    def distances(x1: Any, x2: Any, p: float, compute_mode: int = 0) -> Any:
        if p != 2:
            raise ValueError(f"expected distances of norm 2, got norm {p}")
        apart = op.Sub(op.Unsqueeze(x1, [1]), op.Unsqueeze(x2, [0]))  # (N, C, F)
        return op.Sqrt(op.ReduceSumSquare(apart, [2], keepdims=0))

    def in_order(x: Any, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:
        # Of equal values TopK gives the one with the lower index first, as a stable sort does.
        return op.TopK(x, op.Gather(op.Shape(x), [dim]), axis=dim, largest=int(descending), sorted=1)

    aten = torch.ops.aten
    return {aten._cdist_forward.default: distances, aten.sort.stable: in_order}
