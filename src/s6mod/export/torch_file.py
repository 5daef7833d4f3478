"""``torch.export``: a traced program as the bytes of a ``.pt2`` file. torch alone opens it."""

import hashlib
import io
import warnings

import torch
from safetensors.torch import save
from torch import Tensor
from torch.export import ExportedProgram

from s6mod.export.graph import traceable
from s6mod.export.metadata import KEY, Metadata

_ORIGINS = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "torch_fn")  # of a node; may hold paths


def converted(program: ExportedProgram) -> ExportedProgram:
    """The program without regions of autocast, which torch cannot read back, and without a path of this machine."""
    with torch.no_grad(), traceable(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain: ExportedProgram = program.run_decompositions({})
    for node in plain.graph.nodes:
        for origin in _ORIGINS:
            node.meta.pop(origin, None)
        if node.target is torch.ops.aten.view.default:  # strides at run time may be others than those that were traced
            node.target = torch.ops.aten.reshape.default
    plain.graph_module.recompile()
    return plain


def checksum(program: ExportedProgram) -> str:
    """SHA-256 of all tensors that the program computes with, as safetensors."""
    held = {**program.state_dict, **program.constants}
    tensors = {name: value.detach().clone() for name, value in held.items() if isinstance(value, Tensor)}
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in tensors.items()})).hexdigest()


def content(program: ExportedProgram, metadata: Metadata) -> bytes:
    """The bytes of the file; metadata are the extra file ``s6mod``."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tensors whose rows do not follow each other
        torch.export.save(program, file, extra_files={KEY: metadata.model_dump_json()})
    return file.getvalue()
