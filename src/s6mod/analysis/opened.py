"""A finished run opened again: its learner as it was at the end of training. Nothing is written."""

import functools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s6mod.config import merge
from s6mod.data import DataConfig, Dataset, StreamPlan
from s6mod.engine.checkpoint import Tree, fitting, has_state, read_state
from s6mod.errors import CheckpointError
from s6mod.files import parse_json, plain_file, read_json
from s6mod.learner import Learner
from s6mod.run_files import RunFiles
from s6mod.runs.config import RunConfig, read_run_config
from s6mod.runs.folder import RunFolder


@dataclass(frozen=True)
class Opened:
    """A run with its learner; what is done to the learner stays here."""

    folder: Path
    config: RunConfig
    learner: Learner
    dataset: Dataset
    plan: StreamPlan

    @property
    def label(self) -> str:
        """Method and branch."""
        return self.config.cell.split("/")[0]

    def records(self) -> list[dict[str, Any]]:
        """What it recorded on its way."""
        file = RunFiles(self.folder).records
        try:
            return [parse_json(line) for line in plain_file(file).read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError):
            raise CheckpointError(
                f"expected the records of a run, got a damaged or missing {file}; restore it or run it again"
            ) from None

    def memory(self) -> tuple[Tensor, Tensor]:
        """Images and labels (on the host) of the replay memory."""
        memory = self.learner.memory
        return memory.images[: len(memory)], memory.labels[: len(memory)]


def open_run(folder: Path, device: str = "auto", data_root: str | None = None) -> Opened:
    """The run in a folder; ``data_root``: where the data lies here, if elsewhere than when it was run."""
    elsewhere: dict[str, Any] = {"engine": {"device": device, "capture": "off"}}
    if data_root is not None:
        elsewhere["data"] = {"root": data_root}
    config = RunConfig.parse(merge(read_run_config(folder, track=[]).plain(), elsewhere))
    files = RunFolder(folder)
    if not files.result.exists():
        raise CheckpointError(
            f"expected a finished run, got {folder} without a result; "
            f"go on with: s6mod train --resume {shlex.quote(str(folder))}"
        )
    if not has_state(files.checkpoint):
        raise CheckpointError(
            f"expected a checkpoint in {folder}, got none; run it again with --set output.keep_checkpoint=true"
        )
    state, header = read_state(files.checkpoint)
    with fitting(files.checkpoint):
        return _opened(folder, files, config, state, header)


def _opened(folder: Path, files: RunFolder, config: RunConfig, state: Tree, header: dict[str, Any]) -> Opened:
    begun_as = files.begun_as
    if header["hash"] != begun_as:
        raise CheckpointError(
            f"expected a checkpoint of run {begun_as}, got one of {header['hash']} in {folder}; restore it"
        )
    result = read_json(files.result)
    position = state["cursor"]["position"]
    if position != result["steps"]:
        raise CheckpointError(
            f"expected the final state of {folder}, got one of step {position} of {result['steps']}, as the last could "
            "not be saved; run it again"
        )
    dataset = config.data.seen_by(_load(config.data), config.seed)
    learner = Learner.from_config(config.learner_config(dataset))
    learner.load_state_dict(state["learner"], dataset.image_shape)
    if not all(parameter.isfinite().all() for peer in learner.peers for parameter in peer.parameters()):
        raise CheckpointError(
            f"expected a run with finite weights, got {folder}, which diverged; run it again with a lower "
            "method.optimizer.lr"
        )
    plan = StreamPlan.load(files.stream)
    return Opened(folder, config, learner, dataset.to(learner.engine.device), plan)


def task_accuracy(predictions: Tensor, labels: Tensor, plan: StreamPlan) -> float:
    """Acc in percent: the mean over tasks of the accuracy on the classes of each."""
    shares = []
    for classes in plan.task_classes:
        rows = torch.isin(labels, torch.tensor(classes))
        shares.append(100 * (predictions[rows] == labels[rows]).double().mean().item())
    return sum(shares) / len(shares)


@functools.cache
def _load(config: DataConfig) -> Dataset:
    return config.load()
