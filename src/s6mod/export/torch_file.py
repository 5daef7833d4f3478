"""``torch.export``: a traced program as the bytes of a ``.pt2`` file. torch alone opens it."""

import hashlib
import io

from safetensors.torch import save
from torch import Tensor
from torch.export import ExportedProgram
from torch.export import save as save_program

from s6mod.export.metadata import KEY, Metadata


def checksum(program: ExportedProgram) -> str:
    """SHA-256 of all tensors that the program computes with, as safetensors."""
    held = {**program.state_dict, **program.constants}
    tensors = {name: value.detach().clone() for name, value in held.items() if isinstance(value, Tensor)}
    return hashlib.sha256(save({name: tensor.contiguous() for name, tensor in tensors.items()})).hexdigest()


def content(program: ExportedProgram, metadata: Metadata) -> bytes:
    """The bytes of the file; metadata are the extra file ``s6mod``."""
    file = io.BytesIO()
    save_program(program, file, extra_files={KEY: metadata.model_dump_json()})
    return file.getvalue()
