"""``torch.export``: a traced program as the bytes of a ``.pt2`` file. torch alone opens it."""

import hashlib
import io

import torch
from safetensors.torch import save
from torch import Tensor
from torch.export import ExportedProgram

from s6mod.export.graph import Run
from s6mod.export.metadata import KEY, Metadata


def packed(program: ExportedProgram, metadata: Metadata) -> tuple[bytes, Metadata]:
    """The bytes of the file, and its metadata with the checksum: they are the extra file ``s6mod``."""
    program = _plain(program)
    metadata = metadata.model_copy(update={"checksum": checksum(program)})
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={KEY: metadata.model_dump_json()})
    return file.getvalue(), metadata


def _plain(program: ExportedProgram) -> ExportedProgram:
    """Without regions of autocast, which torch cannot read back, and without a path of this machine."""
    plain: ExportedProgram = program.run_decompositions({})
    for node in plain.graph.nodes:
        node.meta = {name: value for name, value in node.meta.items() if name == "val"}  # not where it comes from
        if node.target is torch.ops.aten.view.default:  # strides at run time may be others than those that were traced
            node.target = torch.ops.aten.reshape.default
    plain.graph_module.recompile()
    return plain


def checksum(program: ExportedProgram) -> str:
    """SHA-256 of all tensors that the program computes with, as safetensors."""
    held = {**program.state_dict, **program.constants}
    tensors = {name: value.detach().clone().contiguous() for name, value in held.items() if isinstance(value, Tensor)}
    return hashlib.sha256(save(tensors)).hexdigest()


def session(payload: bytes) -> Run:
    """What answers by a file that we have just written: opening one may run code."""
    module = torch.export.load(io.BytesIO(payload)).module()
    return lambda images: [output.numpy() for output in module(torch.from_numpy(images))]
