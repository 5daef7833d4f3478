"""Everything that predicts as one function of uint8 images, which torch can trace: preparation, networks, scores.

It is made of a ``Predictor`` on the CPU in float32, which is not used for anything else afterwards.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from s6mod.engine.evaluate import Predictor
from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import InputError

OUTPUTS = ("labels", "probabilities", "scores")


class Graph(nn.Module):
    """The score table ``table`` of a predictor, of its first ``classes`` outputs, and its softmax by a temperature.

    Class means and the memory's statistics of BatchNorm are constants in it.
    """

    def __init__(self, predictor: Predictor, table: str, classes: int, temperature: float) -> None:
        super().__init__()
        self.predictor, self.table, self.classes, self.temperature = predictor, table, classes, temperature
        peers = predictor.peers
        self.method = predictor.method
        self.networks = nn.ModuleList(peer.network for peer in peers)
        self.branches = nn.ModuleList(peer.branch for peer in peers if peer.branch is not None)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """uint8 images (N, C, H, W) -> labels (N,), probabilities and scores (N, classes)."""
        scores = self.predictor.at_once(images, self.table)[:, : self.classes]
        return scores.argmax(1), (scores / self.temperature).softmax(1), scores

    def expected(self, images: Tensor) -> Tensor:
        """The scores that the predictor gives the images, by the way that a learner takes."""
        with torch.no_grad():
            self.eval()(images)  # so that constants are ordinary tensors, which can be traced
        return self.predictor(images, self.table)[self.table][:, : self.classes].clone()

    @ordinary_tensors()
    def traced(self) -> ExportedProgram:
        """The program for any number of images; ``expected`` was asked before."""
        # The file keeps the images that are traced with, so they are nobody's; one alone would be a special case.
        images = torch.zeros(2, *self.method.image_shape, dtype=torch.uint8)
        with torch.no_grad(), self.predictor.engine.twins(), traceable(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about itself
            return torch.export.export(self.eval(), (images,), dynamic_shapes={"images": {0: Dim("batch", min=1)}})


@contextmanager
def traceable() -> Iterator[None]:
    """What torch cannot trace or convert is told in one sentence; a method or branch may be anybody's."""
    try:
        yield
    except Exception as error:  # torch has many kinds
        why = next(filter(None, str(error).splitlines()), "no reason given")
        raise InputError(
            f"expected a method and a branch that torch.export can trace, got {type(error).__name__}: {why}; "
            "let prepare, network and scores use tensor operations alone, and x.shape[0] instead of len(x)"
        ) from error
