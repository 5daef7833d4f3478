"""A learner as a batch classifier of CapyMOA, for its evaluation loops; its package needs a JVM.

Instances arrive as rows of floats in [0, 1] and labels as positions among the classes of the schema. One
``batch_train`` is one step, so the loop's ``batch_size`` is that of the stream.
"""

from typing import Any

import torch
from capymoa.base import BatchClassifier
from torch import Tensor

from s6mod.interfaces.flat import unflattened
from s6mod.learner import Learner


class CapyMOALearner(BatchClassifier):  # type: ignore[misc]
    """``method``, ``branch`` and ``options`` are what a ``Learner`` is made with; ``learner`` is the learner.

    ``image_shape`` is (C, H, W), (H, W, C) or (H, W).
    """

    def __init__(
        self,
        schema: Any,
        random_seed: int = 1,
        method: Any = None,
        branch: Any = None,
        image_shape: tuple[int, ...] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(schema, random_seed)
        self.image_shape = image_shape
        self.learner = Learner(method, branch, **{"seed": random_seed, **(options or {})})

    def batch_train(self, x: Tensor, y: Tensor) -> None:
        """Learn rows (B, F) and their labels (B,) in one step."""
        self.learner.learn(unflattened(x, self.image_shape), y)

    def batch_predict(self, x: Tensor) -> Tensor:
        """The label of each row, (B,); 0 while nothing was learned."""
        images = unflattened(x, self.image_shape)
        if self.learner.steps == 0:
            return torch.zeros(len(x), dtype=torch.int64)
        labels: Tensor = self.learner.predict(images)
        return labels

    def batch_predict_proba(self, x: Tensor) -> Tensor:
        """The learner's probabilities: (B, classes of the schema), 0 for those that have not come."""
        images = unflattened(x, self.image_shape)
        shares = torch.zeros(len(x), self.schema.get_num_classes())
        if self.learner.steps > 0:
            shares[:, torch.tensor(self.learner.classes.columns)] = torch.as_tensor(self.learner.predict_proba(images))
        return shares
