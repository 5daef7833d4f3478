"""Everything that predicts as one function of uint8 images, which torch can trace: preparation, networks, scores."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from s6mod.engine.evaluate import Predictor
from s6mod.export.metadata import Metadata

OUTPUTS = ("labels", "probabilities", "scores")
Run = Callable[[NDArray[np.uint8]], list[NDArray[Any]]]  # of a file: images (N, C, H, W) -> outputs


class Graph(nn.Module):
    """What a predictor on the CPU in float32 answers by one score table, for the outputs that have a class.

    Class means and the memory's statistics of BatchNorm are constants in it.
    """

    def __init__(self, predictor: Predictor, metadata: Metadata) -> None:
        super().__init__()
        self.predictor, self.metadata = predictor.frozen(metadata.scores), metadata
        self.method, self.peers = self.predictor.method, nn.ModuleList(self.predictor.peers)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """uint8 images (N, C, H, W) -> labels (N,), probabilities and scores (N, classes)."""
        scores = self.predictor.at_once(images, self.metadata.scores)[:, : len(self.metadata.classes)]
        return scores.argmax(1), (scores / self.metadata.temperature).softmax(1), scores

    def traced(self) -> ExportedProgram:
        """The program for any number of images."""
        # The file keeps the images that are traced with, so they are nobody's; one alone would be a special case.
        images = torch.zeros(2, *self.metadata.image_shape, dtype=torch.uint8)
        with torch.no_grad(), self.predictor.engine.twins():
            return torch.export.export(self, (images,), dynamic_shapes={"images": {0: Dim("batch", min=1)}})
