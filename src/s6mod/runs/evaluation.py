"""How well a learner does on the test images of the tasks that a run has seen.

They are scored in batches of one size, however many tasks they come from, and what is found is read back at once: on a
GPU nothing waits between two batches.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from s6mod.data import Dataset

Scores = Callable[[Tensor], dict[str, Tensor]]  # uint8 images -> score tables (B, classes) by name


class TestTasks:
    """The test images of a data set, one task after the other; ``batch``: how many are scored at once."""

    __test__ = False  # it is none of pytest's

    def __init__(self, dataset: Dataset, task_classes: Sequence[tuple[int, ...]], batch: int) -> None:
        tasks = [_rows_of(dataset.test_labels, classes) for classes in task_classes]
        rows = torch.cat(tasks)
        self.images, self.batch = dataset.test_images, batch
        self.rows = rows.to(self.images.device)
        self.labels = dataset.test_labels[rows]
        self.bounds = [0, *torch.tensor([len(task) for task in tasks]).cumsum(0).tolist()]

    def guesses(self, tasks: int, scores: Scores) -> dict[str, Tensor]:
        """The class of each test image of the first so many tasks by each score table, (N,) on the host."""
        found: dict[str, list[Tensor]] = {}
        for rows in self.rows[: self.bounds[tasks]].split(self.batch):
            for name, table in scores(self.images[rows]).items():
                found.setdefault(name, []).append(table.argmax(1))
        together = torch.stack([torch.cat(parts) for parts in found.values()]).cpu()
        return dict(zip(found, together, strict=True))

    def accuracies(self, guesses: Tensor) -> list[float]:
        """In percent, on each of the tasks that were guessed."""
        hits = guesses == self.labels[: len(guesses)]
        tasks = [(first, end) for first, end in pairwise(self.bounds) if end <= len(guesses)]
        return [100 * hits[first:end].sum().item() / (end - first) for first, end in tasks]


def _rows_of(labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    return torch.isin(labels, torch.tensor(classes)).nonzero().flatten()
