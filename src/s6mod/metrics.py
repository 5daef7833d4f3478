"""What a run achieved: accuracy per task over time, and the figures drawn from it.

All accuracies are in percent (0..100), here and in every result. Tasks count from 0, and a[i, j] is the accuracy on the
test images of task j after training task i. How predictions are made is decided elsewhere; only the nearest-mean
classifier, which needs nothing but features, is computed here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s6mod.errors import InputError


@dataclass(frozen=True, eq=False)
class AccuracyMatrix:
    """a[i, j] for j <= i, NaN above the diagonal: a task is not evaluated before it was trained."""

    values: npt.NDArray[np.float64]  # (T, T)

    def __post_init__(self) -> None:
        own = np.array(self.values, dtype=np.float64)
        own.setflags(write=False)
        object.__setattr__(self, "values", own)
        shape = self.values.shape
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
            raise InputError(
                f"expected a square accuracy matrix, got shape {shape}; give one row for each trained task"
            )
        seen = self.values[np.tril_indices(len(self.values))]
        if not ((seen >= 0) & (seen <= 100)).all():
            raise InputError(
                "expected accuracies of 0..100 percent for all tasks seen, got others; multiply fractions by 100"
            )
        if not np.isnan(self.values[np.triu_indices(len(self.values), k=1)]).all():
            raise InputError(
                "expected NaN for tasks not yet trained, got accuracies; build it with AccuracyMatrix.from_rows"
            )

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]]) -> "AccuracyMatrix":
        """From one row for each trained task: row i holds a[i, 0..i]. An unfinished run is a smaller matrix."""
        values = np.full((len(rows), len(rows)), np.nan)
        for i, row in enumerate(rows):
            if len(row) != i + 1:
                raise InputError(
                    f"expected {i + 1} accuracies after task {i}, got {len(row)}; evaluate each task seen so far"
                )
            values[i, : i + 1] = row
        return cls(values)

    def rows(self) -> list[list[float]]:
        """The inverse of ``from_rows``, plain numbers for JSON."""
        return [row[: i + 1].tolist() for i, row in enumerate(self.values)]

    def curve(self) -> npt.NDArray[np.float64]:
        """(T,): mean accuracy over the tasks seen so far, after each task: 1/(i+1) sum_{j<=i} a[i, j]."""
        means: npt.NDArray[np.float64] = np.nanmean(self.values, axis=1)
        return means


@dataclass(frozen=True)
class Metrics:
    """The figures of a run, in percent. T tasks, a = its accuracy matrix.

    AF, average forgetting, has three definitions in the literature; with one task nothing can be forgotten: all are 0.
    """

    accuracy: float
    """Acc = 1/T sum_j a[T-1, j]: mean over tasks; the plain test accuracy if all tasks have equally many images."""

    learning_accuracy: float
    """N-Acc = 1/T sum_i a[i, i]: accuracy on a task right after it was learned."""

    forgetting: float
    """AF as in CCL-DC, the primary one: 1/(T-1) sum_{p<T-1} (max_{p<=i<=T-1} a[i, p] - a[T-1, p]); no term is < 0."""

    forgetting_mose: float
    """AF as in MOSE and OnPro: the same terms over all T tasks, the last being 0, so (T-1)/T of ``forgetting``."""

    forgetting_paper: float
    """AF by the S6MOD paper's equation: 1/(T-1) sum_{0<t<T} max_{i<t} (a[i, i] - a[t, i]): the worst task each time."""

    anytime_accuracy: float
    """Mean over the T evaluations of the mean accuracy over the tasks seen: 1/T sum_i 1/(i+1) sum_{j<=i} a[i, j]."""

    curve: tuple[float, ...]
    """(T,): the terms of ``anytime_accuracy``; the last is ``accuracy``."""

    @classmethod
    def of(cls, matrix: AccuracyMatrix) -> "Metrics":
        """All figures of one accuracy matrix."""
        a = matrix.values
        T = len(a)
        learned = np.diagonal(a)  # (T,)
        lost = np.nanmax(a, axis=0) - a[-1]  # (T,): best ever minus final, of each task
        worst = [np.max(learned[:t] - a[t, :t]) for t in range(1, T)]  # of the tasks before t, at time t
        curve = matrix.curve()
        return cls(
            accuracy=float(a[-1].mean()),
            learning_accuracy=float(learned.mean()),
            forgetting=float(lost[:-1].mean()) if T > 1 else 0.0,
            forgetting_mose=float(lost.mean()),
            forgetting_paper=float(np.mean(worst)) if T > 1 else 0.0,
            anytime_accuracy=float(curve.mean()),
            curve=tuple(curve.tolist()),
        )

    def plain(self) -> dict[str, Any]:
        """The figures by name, plain numbers for JSON."""
        return asdict(self) | {"curve": list(self.curve)}


def nearest_centroid(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Class means (C, F) in float32 of ``features`` (N, F), and which classes are present (C,) bool.

    The mean of a class without samples is zero and stands for nothing: ``ncm_scores`` never chooses it.
    """
    sums = features.new_zeros(num_classes, features.shape[1], dtype=torch.float32)
    sums.index_add_(0, labels, features.float())
    counts = torch.zeros_like(sums[:, 0]).index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))
    return sums / counts.clamp(min=1)[:, None], counts > 0


def ncm_scores(features: Tensor, centroids: Tensor, present: Tensor) -> Tensor:
    """Scores (N, C) of the nearest-mean classifier: -||f - c||^2, and -inf for classes that are not present."""
    # Not by |f|^2 - 2 f.c + |c|^2, which loses the digits that tell close means apart.
    distances = torch.cdist(features.float(), centroids, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square().neg().masked_fill(~present, -torch.inf)


def confusion(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(C, C) int64: how many samples of class i (row) were predicted as class j (column)."""
    pairs = labels.long() * num_classes + predictions.long()
    return torch.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)
