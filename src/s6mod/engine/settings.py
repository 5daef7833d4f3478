"""How a learner computes: device, precision, memory layout, determinism. None of it changes what is computed.

Nor does what its caller has set: modes and defaults of torch are put aside while a learner computes.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import Literal

import torch
from pydantic import Field

from s6mod.config import Config
from s6mod.errors import ConfigError
from s6mod.kernels import plain_twins


class MissingDeviceError(ConfigError):
    """A device that this machine does not have."""


class EngineConfig(Config):
    """How to compute; ``auto`` chooses by device."""

    device: str = Field("auto", description="auto (a GPU if there is one), cpu, cuda or cuda:N")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of convolutions and matrix products; auto: bfloat16 on CUDA, float32 on a CPU"
    )
    capture: Literal["auto", "off"] = Field(
        "auto", description="on CUDA: capture recurring steps as graphs and replay them, or launch every kernel"
    )
    kernels: Literal["auto", "off"] = Field(
        "auto", description="on CUDA: the package's own kernels where they suit, or their plain twins alone"
    )
    deterministic: bool = Field(False, description="on CUDA: only algorithms that give the same bits every time")
    eval_batch: int = Field(500, ge=1, description="images in one forward pass when predicting")


@dataclass(frozen=True)
class Engine:
    """An EngineConfig resolved for this machine."""

    device: torch.device
    bfloat16: bool
    capture: bool
    kernels: bool
    eval_batch: int

    @classmethod
    def resolve(cls, config: EngineConfig) -> "Engine":
        """Choose what is left to ``auto``; refuse a device that is not there."""
        name = config.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise ConfigError(
                f"expected a device such as auto, cpu or cuda:0, got {name!r}; set engine.device"
            ) from None
        if device.type not in ("cpu", "cuda"):
            raise ConfigError(f"expected a cpu or cuda device, got {name!r}; set engine.device")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise MissingDeviceError(
                f"expected a CUDA device for engine.device={name}, got a machine without one; use engine.device=cpu"
            )
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise MissingDeviceError(f"expected a CUDA device below cuda:{count}, got {name}; set engine.device")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if config.deterministic and device.type == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        bfloat16 = config.precision == "bfloat16" or (config.precision == "auto" and device.type == "cuda")
        capture = config.capture == "auto" and device.type == "cuda"
        return cls(device, bfloat16, capture, config.kernels == "auto", config.eval_batch)

    def autocast(self) -> torch.autocast:
        """The context in which forward passes run."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)

    def twins(self) -> AbstractContextManager[None]:
        """The context in which steps and predictions choose between kernels and plain twins."""
        return nullcontext() if self.kernels else plain_twins()

    @property
    def memory_format(self) -> torch.memory_format:
        """Channels-last where the tensor cores want it."""
        return torch.channels_last if self.device.type == "cuda" else torch.contiguous_format


_making = RLock()


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Around what makes or changes a learner's tensors: as if its caller were in no mode and had set no device.

    Gradients can flow, whether or not the caller is in no_grad() or inference_mode(), what names no device is on the
    host, and precision is the engine's, back and forth. torch keeps all of this for each thread.
    """
    with ExitStack() as aside:
        aside.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            aside.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                aside.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def float32_modules() -> Iterator[None]:
    """Around what makes a learner's modules: they are float32, whatever type the caller has set for new tensors.

    That type and the generator of initial values are the whole process's, so one learner is made at a time.
    """
    with _making:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
