"""A learner's state: everything that changes, as a tree; how it is saved, and a learner made of what was saved."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from safetensors.torch import load

from s6mod.config import Config
from s6mod.engine.checkpoint import Snapshot, Tree, fitting, read_state
from s6mod.engine.settings import MissingDeviceError
from s6mod.errors import CheckpointError
from s6mod.files import usable
from s6mod.learner.check import check_brought, saved_config
from s6mod.learner.classes import Classes, Name, distinct
from s6mod.learner.config import LearnerConfig
from s6mod.learner.drift import Drift
from s6mod.learner.own import Own
from s6mod.learner.prequential import Tally
from s6mod.methods import Task
from s6mod.run_files import RunFiles

if TYPE_CHECKING:
    from s6mod.learner.learner import Learner


class _Where(Config):
    """A ``Task`` as it is saved."""

    index: int = Field(ge=0)
    step: int = Field(ge=0)
    seen: list[int]
    current: list[int]


class _Host(Config):
    """What the host knows, as it is saved: a state that was edited may hold anything."""

    task: _Where
    steps: int = Field(ge=0)
    quiet: int = Field(ge=0)
    image_shape: list[int] | None = Field(None, min_length=3, max_length=3)
    names: list[Name] | None = None  # of a learner that grows


def state_of(learner: "Learner") -> Tree:
    """Everything that changes in a learner."""
    host: Tree = {"task": vars(learner.task), "steps": learner.steps, "quiet": learner._quiet, "image_shape": None}
    if learner.classes.fixed is None:
        host["names"] = list(learner.classes.names)
    if learner.parts is None or learner.image_shape is None:
        return {"host": host}
    host["image_shape"] = list(learner.image_shape)
    tested = {"tested": learner._tally.state_dict()} if learner.config.tests else {}
    drift = {} if learner._drift is None else {"drift": torch.tensor(learner._drift.errors, dtype=torch.uint8)}
    return {"host": host, **learner.parts.state_tree(), **tested, **drift}


def take_over(learner: "Learner", state: Tree, image_shape: tuple[int, int, int] | None) -> None:
    """Put a learner into a state of one with the same configuration; ``image_shape``: for a state that tells none."""
    host = state["host"]
    _Host.model_validate(host)
    learner.task, learner.steps, learner._quiet = Task(**host["task"]), host["steps"], host["quiet"]
    if learner.classes.fixed is None:
        learner.classes = Classes(None, distinct(host["names"]))
    learner._tally = Tally()
    shape = host.get("image_shape", image_shape)
    if shape is None:
        if learner.steps > 0:
            raise ValueError("batches that were learned by nothing")
        return
    held, told = tuple(state["memory"]["images"].shape), (learner.config.memory_size, *shape)
    if held != told:  # before memory is asked for what a file tells
        raise ValueError(f"images of shape {held} for {told}")
    learner.build(tuple(shape))
    assert learner.parts is not None
    if not all(0 <= number < len(learner.classes) for number in (*learner.task.seen, *learner.task.current)):
        raise ValueError("classes that are not there")
    learner.parts.load_state_tree(state, learner.config.seed, learner.steps, learner.engine.device)
    if learner.config.tests:
        learner._tally.load_state_dict(state["tested"], len(learner.classes))
    if learner._drift is not None:
        learner._drift = Drift(state["drift"].tolist())


def save(learner: "Learner", folder: str | Path) -> None:
    """Save a learner to a folder of its own, not to that of a run."""
    folder = usable(folder)
    around = RunFiles(folder.parent)
    run = around if folder == around.checkpoint else RunFiles(folder)
    if run.config.exists() and run.stream.exists():
        raise CheckpointError(
            f"expected a folder of its own for a learner, got {folder}, which belongs to a run; choose another"
        )
    learner._snapshot().write(folder)


def loaded(kind: type["Learner"], folder: str | Path, device: str | torch.device | None, own: Own) -> "Learner":
    """The learner that was saved in a folder, or that of the run there."""
    inside = RunFiles(usable(folder)).checkpoint
    state, header = read_state(inside if inside.is_dir() else Path(folder))
    with fitting(Path(folder)):
        config = saved_config(folder, header, device, own)
        state = state["learner"] if header["kind"] == "run" else state
        try:
            learner = kind.from_config(config, own.network, own.optimizer)
        except MissingDeviceError:
            raise MissingDeviceError(
                f"expected {config.engine.device} for the learner in {folder}, got a machine without it; "
                f"use Learner.load({str(folder)!r}, device='cpu')"
            ) from None
        check_brought(folder, config, own.network, state)
        learner.load_state_dict(state, header.get("image_shape"))  # an older version told it there
    return learner


def copied(kind: type["Learner"], config: LearnerConfig, plain: Tree, tensors: bytes, own: Own) -> "Learner":
    """A learner in the state of a snapshot, whose tensors come as safetensors."""
    learner = kind.from_config(config, own.network, own.optimizer)
    learner.load_state_dict(Snapshot(load(tensors), plain, {}).tree())
    return learner
