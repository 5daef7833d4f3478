"""A learner as a classifier of scikit-learn: in pipelines, searches and cross-validation.

scikit-learn wants ``classes_`` sorted and the columns of ``predict_proba`` in that order. A learner has them in order
of arrival, so columns are sorted here; a class that comes later may therefore come between two of them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from s6mod.errors import InputError
from s6mod.interfaces.flat import flattened, unflattened
from s6mod.interfaces.held import packed, unpacked, whole
from s6mod.learner import Learner
from s6mod.learner.classes import Name
from s6mod.learner.images import as_batch


class LearnerClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """``method``, ``branch`` and ``options`` are what a ``Learner`` is made with; its seed is ``random_state``.

    Images come as (N, C, H, W), (N, H, W, C) or grey (N, H, W), or flat as (N, F) with ``image_shape``. They are
    learned in their order, ``batch_size`` at a time. ``learner_`` is the learner.
    """

    learner_: Learner

    def __init__(
        self,
        method: Any = None,
        branch: Any = None,
        *,
        image_shape: tuple[int, ...] | None = None,
        batch_size: int = 10,
        random_state: Any = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.branch = branch
        self.image_shape = image_shape
        self.batch_size = batch_size
        self.random_state = random_state
        self.options = options

    def fit(self, X: Any, y: Any) -> "LearnerClassifier":
        """Forget everything, then learn these images in one pass."""
        return self._learn(X, y, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "LearnerClassifier":
        """Learn these images on top. Classes grow as they come: ``classes`` may announce some, and need not."""
        first = not hasattr(self, "learner_")
        announced = None if classes is None else [whole(name) for name in classes]
        if not first and (new := [name for name in announced or () if name not in self.learner_.classes.columns]):
            raise InputError(f"expected classes that were announced at first, got {new[0]!r}; leave classes out")
        return self._learn(X, y, first, announced)

    def _learn(self, X: Any, y: Any, first: bool, announced: list[Name] | None = None) -> "LearnerClassifier":
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise InputError(f"expected batch_size to be an integer from 1 on, got {self.batch_size!r}; set it")
        rows, shape = flattened(X)
        rows, y = validate_data(self, rows, y, reset=first)
        check_classification_targets(y)
        y = y.astype(np.int64) if y.dtype.kind in "fb" else y  # whole numbers, as was checked
        images = self._images(rows, shape)
        learner = self._fresh(announced) if first else self.learner_
        learner.classes.taking(y, len(images))  # all labels are looked at before one is learned
        for start in range(0, len(images), self.batch_size):
            part = slice(start, start + self.batch_size)
            learner.learn(images[part], y[part])
        self.learner_ = learner
        return self

    def _fresh(self, announced: list[Name] | None) -> Learner:
        told = {} if announced is None else {"classes": announced}
        given = self.random_state
        seed = given if isinstance(given, int | np.integer) else check_random_state(given).randint(2**31)
        return Learner(self.method, self.branch, **{"seed": int(seed), **(self.options or {}), **told})

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each image, (N,)."""
        return np.asarray(self._fitted.predict(self._asked(X)))

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The learner's probabilities: (N, classes), columns in the order of ``classes_``."""
        shares = np.asarray(self._fitted.predict_proba(self._asked(X)))
        names = self._fitted.classes.columns
        return shares[:, sorted(range(len(names)), key=lambda number: _order(names[number]))]

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes that came or were announced, sorted; strings stand after integers."""
        names = sorted(self._fitted.classes.columns, key=_order)
        return np.array(names, dtype=object if len({type(name) for name in names}) > 1 else None)

    @property
    def _fitted(self) -> Learner:
        check_is_fitted(self, "learner_")
        return self.learner_

    def _asked(self, X: Any) -> Tensor:
        rows, shape = flattened(X)
        return self._images(validate_data(self, rows, reset=False), shape)

    def _images(self, rows: NDArray[Any], shape: tuple[int, ...] | None) -> Tensor:
        """uint8 (N, 3, H, W) of checked rows (N, F); ``shape``: that of the images, where they came as such."""
        return as_batch(unflattened(rows, self.image_shape) if shape is None else rows.reshape(len(rows), *shape))[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.positive_only = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | ({"learner_": packed(self.learner_)} if "learner_" in state else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        fitted = {"learner_": unpacked(state["learner_"], state["options"])} if "learner_" in state else {}
        super().__setstate__(state | fitted)


def _order(name: Name) -> tuple[bool, Name]:
    return isinstance(name, str), name
