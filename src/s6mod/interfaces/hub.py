"""A learner on the Hugging Face Hub, by its mixin: the files of a saved learner and a model card, nothing pickled.

A saved learner goes on learning, so it holds its replay memory: whoever gets it gets those images. The card says so.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download
from torch import nn

from s6mod._version import __version__
from s6mod.engine.checkpoint import STATE
from s6mod.files import write_whole
from s6mod.learner import Learner
from s6mod.run_files import RunFiles
from s6mod.runs.records import read_matrix, read_result

CONFIG = "config.json"  # for readers, and for the Hub, which counts its downloads; state.json has what is loaded
FILES = [STATE, "state-*.safetensors"]  # all that is fetched of a repository
LIBRARY = "s6mod"
TASK = "image-classification"
USE = """```python
from s6mod.interfaces.hub import HubLearner

learner = HubLearner.from_pretrained("OWNER/NAME").learner
learner.predict(x)
```"""


class HubLearner(ModelHubMixin):  # type: ignore[misc]
    """Holds a ``Learner`` as ``learner``; ``runs``: folders or records of runs that its card tells, its own first."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.runs: list[Path] = []

    @classmethod
    def of_run(cls, folder: str | Path, *beside: str | Path) -> "HubLearner":
        """The learner of a finished run; ``beside``: runs or records for its card to compare with, as controls."""
        held = cls(Learner.load(folder))
        held.runs = [Path(run) for run in (folder, *beside)]
        return held

    def _save_pretrained(self, save_directory: Path) -> None:
        self.learner.save(save_directory)
        write_whole(save_directory / CONFIG, json.dumps(self.learner.config.plain(), indent=1))

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, device: str | None = None, network: nn.Module | None = None, **options: Any
    ) -> "HubLearner":
        folder = Path(model_id)
        if not folder.is_dir():
            names = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            asked = {name: options[name] for name in names if name in options}
            folder = Path(snapshot_download(model_id, allow_patterns=FILES, **asked))
        return cls(Learner.load(folder, device, network=network))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """What the learner is, what it has seen, and, of a run, how well it does beside others."""
        data = ModelCardData(library_name=LIBRARY, pipeline_tag=TASK, tags=["continual-learning", "online-learning"])
        config, learner = self.learner.config, self.learner
        kept = 0 if learner.parts is None else learner.memory.filled
        name = "+".join(part.name for part in (config.method, config.branch, config.teacher) if part is not None)
        facts = {
            "method": config.method.name,
            "branch": "none" if config.branch is None else config.branch.name,
            "teacher": "none" if config.teacher is None else config.teacher.name,
            "images": "not known yet" if learner.image_shape is None else f"{learner.image_shape}, uint8",
            "classes": ", ".join(map(str, learner.classes_)) or "none yet",
            "predicts by": f"{config.weights} weights, {config.statistics} statistics, scores of {learner.primary}",
            "learned": f"{learner.steps} batches",
            "seed": str(config.seed),
            "written by": f"s6mod {__version__}",
        }
        parts = [
            f"---\n{data.to_yaml()}\n---",
            f"# {LIBRARY}: {name}",
            "An online continual learner. It can predict, and go on learning.",
            _table(["", ""], [[fact, _cell(value)] for fact, value in facts.items()]),
            f"**It holds {kept} images of its stream in its replay memory.**",
            *self._accuracies(),
            USE,
        ]
        return ModelCard("\n\n".join(parts) + "\n")

    def _accuracies(self) -> list[str]:
        if not self.runs:
            return []
        results = [read_result(RunFiles(run).result if run.is_dir() else run, sealed=False) for run in self.runs]
        by_task = [read_matrix(run)[-1] for run in self.runs]
        tasks = max(map(len, by_task))
        head = ["run", "seed", "mean", *(f"task {number}" for number in range(1, tasks + 1))]
        rows = [
            [_cell(result["cell"]), str(result["seed"]), f"{result['metrics'][result['primary']]['accuracy']:.2f}"]
            + [f"{share:.1f}" for share in shares]
            + [""] * (tasks - len(shares))
            for result, shares in zip(results, by_task, strict=True)
        ]
        return [
            "## Accuracy at the end, in percent, by task",
            f"Data: {_cell(results[0]['config']['data']['name'])}. The first row is this learner.",
            _table(head, rows),
        ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def _cell(text: str) -> str:
    """Text that stays in its cell and is no markup: names of classes and runs may come from anywhere."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#!" else letter for letter in text if letter.isprintable())
