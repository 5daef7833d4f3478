"""A learner as a classifier of river: features are a dictionary with the image under one key.

Each ``learn_one`` is a batch of one image, so it costs a whole step. ``learn_many`` makes one batch of all its images.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from river import base
from torch import Tensor

from s6mod.errors import InputError
from s6mod.interfaces.held import packed, unpacked, whole
from s6mod.learner import Learner
from s6mod.learner.classes import Name
from s6mod.learner.images import as_batch

if TYPE_CHECKING:
    import pandas as pd


class RiverLearner(base.MiniBatchClassifier):  # type: ignore[misc]
    """``method``, ``branch`` and ``options`` are what a ``Learner`` is made with; ``learner`` is the learner."""

    def __init__(
        self,
        method: Any = None,
        branch: Any = None,
        key: str = "image",
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.branch = branch
        self.key = key
        self.seed = seed
        self.options = options
        self.learner = Learner(method, branch, **{"seed": seed, **(options or {})})

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[str, Any], y: Name) -> None:
        """Learn one image."""
        self.learner.learn(self._image(x), [whole(y)])

    def predict_one(self, x: dict[str, Any], **kwargs: Any) -> Name | None:
        """The label of one image; None while nothing was learned."""
        image = self._image(x)
        return None if self.learner.steps == 0 else self.learner.predict(image).tolist()[0]

    def predict_proba_one(self, x: dict[str, Any], **kwargs: Any) -> dict[Name, float]:
        """The learner's probabilities by label; nothing while nothing was learned."""
        image = self._image(x)
        if self.learner.steps == 0:
            return {}
        return dict(zip(self.learner.classes.columns, self.learner.predict_proba(image)[0].tolist(), strict=True))

    def learn_many(self, X: "pd.DataFrame", y: "pd.Series[Any]") -> None:
        """Learn the images of a column as one batch."""
        self.learner.learn(self._images(X), [whole(label) for label in y])

    def predict_many(self, X: "pd.DataFrame") -> "pd.Series[Any]":
        """The label of each image; an empty series while nothing was learned."""
        import pandas as pd

        images = self._images(X)
        if self.learner.steps == 0:
            return pd.Series(index=X.index[:0], dtype=object)
        return pd.Series(self.learner.predict(images), index=X.index)

    def predict_proba_many(self, X: "pd.DataFrame") -> "pd.DataFrame":
        """The learner's probabilities: a column for each label."""
        import pandas as pd

        images = self._images(X)
        if self.learner.steps == 0:
            return pd.DataFrame(index=X.index)
        return pd.DataFrame(np.asarray(self.learner.predict_proba(images)), X.index, list(self.learner.classes.columns))

    def _image(self, x: dict[str, Any]) -> Tensor:
        image, single = as_batch(self._under_key(x))
        if not single:
            raise InputError(f"expected one image under {self.key!r}, got a batch; learn_many takes several")
        return image

    def _images(self, X: Any) -> Tensor:
        return as_batch(list(self._under_key(X)))[0]

    def _under_key(self, features: Any) -> Any:
        if self.key not in features:
            got = ", ".join(map(repr, list(features)[:5])) or "nothing"
            raise InputError(f"expected an image under the key {self.key!r}, got {got}; put it there, or set key")
        return features[self.key]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"learner": packed(self.learner)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"learner": unpacked(state["learner"], state["options"])}
