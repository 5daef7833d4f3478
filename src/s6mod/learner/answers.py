"""What can be asked of whoever has score tables for images: labels, probabilities, scores, accuracy."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from s6mod.engine.evaluate import ENSEMBLE, ensemble
from s6mod.errors import InputError
from s6mod.learner.classes import Classes, Labels, Name
from s6mod.learner.images import Images, as_batch, as_batch_for


class Answers:
    """Predictions by the score table ``primary``; what is a batch for one is a single image for another.

    torch in, torch on the host out; anything else in, NumPy out. A single image gets a single answer.
    """

    classes: Classes
    image_shape: tuple[int, int, int] | None

    @property
    def primary(self) -> str:
        """The name of the score table that predicts."""
        raise NotImplementedError

    @property
    def temperature(self) -> float:
        """By what scores are divided for probabilities."""
        raise NotImplementedError

    def _tables(self, images: Tensor, only: str | None = None) -> dict[str, Tensor]:
        """Score tables (N, classes) of uint8 images (N, 3, H, W); ``only``: the one that is wanted."""
        raise NotImplementedError

    @property
    def _asked(self) -> "Answers":
        """Who answers."""
        return self

    def predict(self, x: Images) -> Any:
        """The label of each image, (N,); names that are strings come as an array of NumPy."""
        images, single = as_batch(x)
        asked = self._asked
        numbers = asked._chosen(images).argmax(1).cpu()
        labels = asked.classes.labels(numbers)  # those of now: another thread may have learned new ones
        if single:
            return cast(Name, labels[0].item() if isinstance(labels, Tensor) else labels.tolist()[0])
        return labels.numpy() if isinstance(labels, Tensor) and not isinstance(x, Tensor) else labels

    def predict_proba(self, x: Images) -> Tensor | NDArray[np.float32]:
        """The softmax of scores / ``temperature`` over the classes to choose from, 0 elsewhere: (N, classes).

        With ``test_then_train`` it is calibrated on the stream. Without, the temperature is 1, and scores of most
        tables are no log-probabilities. Columns are in the order of ``classes_``, or of the labels' numbers in a
        learner with ``num_classes``.
        """
        images, single = as_batch(x)
        asked = self._asked
        shares = (asked._chosen(images) / asked.temperature).softmax(1).cpu()
        shares = shares[0] if single else shares
        return shares if isinstance(x, Tensor) else cast(NDArray[np.float32], shares.numpy())

    def evaluate(self, x: Images, y: Labels) -> float:
        """The share of images whose label is predicted, in percent."""
        images = as_batch_for(x, y)
        asked = self._asked
        labels = asked.classes.numbers(y, len(images))
        hits = asked._chosen(images).argmax(1).cpu() == labels
        return 100 * hits.sum().item() / len(hits)

    def scores(self, x: Images, only: str | None = None) -> dict[str, Tensor]:
        """All score tables (N, classes) by name: the head, the nearest class mean, the branch's head, ...

        ``only``: the one that is wanted. Others are left out where that saves work, such as a pass over the memory.
        """
        tables = self._tables(as_batch(x)[0], only)
        if only is not None and only not in tables:
            raise InputError(f"expected a score table that there is, got {only!r}; choose one of {', '.join(tables)}")
        return tables | {ENSEMBLE: ensemble(tables)} if only is None and self.primary == ENSEMBLE else tables

    def _chosen(self, images: Tensor) -> Tensor:
        return self._tables(images, self.primary)[self.primary]

    def _check_shape(self, images: Tensor) -> None:
        if shape_of(images) != self.image_shape:
            raise InputError(
                f"expected images of shape {self.image_shape} as in the first batch, got {shape_of(images)}; "
                "resize them"
            )

    def _named(self, tables: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tables with the outputs that have a class, (N, classes)."""
        return {name: table[:, : len(self.classes)] for name, table in tables.items()}


def shape_of(images: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of images (N, C, H, W)."""
    channels, height, width = images.shape[1:]
    return channels, height, width
