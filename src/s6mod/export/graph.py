"""Everything that predicts as one function of uint8 images, which torch can trace: preparation, networks, scores.

It is made of a learner's twin on the CPU in float32, so that the learner itself stays as it is.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from s6mod.config import merge
from s6mod.engine.settings import ordinary_tensors
from s6mod.errors import InputError
from s6mod.learner import Learner
from s6mod.learner.config import LearnerConfig

OUTPUTS = ("labels", "probabilities", "scores")
_ENGINE = {"device": "cpu", "precision": "float32", "capture": "off", "kernels": "off", "deterministic": False}


def twin_of(learner: Learner) -> Learner:
    """The learner as it is now, once more, on the CPU in float32."""
    config = LearnerConfig.parse(merge(learner.config.plain(), {"engine": _ENGINE}))
    twin = type(learner).from_config(config, learner.brought)
    with learner.turn:  # no other thread may learn while its state is copied
        twin.load_state_dict(learner.state_dict())
    return twin


class Graph(nn.Module):
    """What predicts in ``learner``, which is not used for anything else afterwards.

    Class means and the memory's statistics of BatchNorm are constants in it.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.table = learner.primary
        self.predictor = learner.predictor()
        self.classes = len(learner.classes)
        peers = self.predictor.peers
        self.method = learner.method
        self.networks = nn.ModuleList(peer.network for peer in peers)
        self.branches = nn.ModuleList(peer.branch for peer in peers if peer.branch is not None)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """uint8 images (N, C, H, W) -> labels (N,), probabilities and scores (N, classes)."""
        scores = self.predictor.at_once(images, self.table)[:, : self.classes]
        return scores.argmax(1), scores.softmax(1), scores

    def expected(self, images: Tensor) -> Tensor:
        """The scores that the learner gives the images, by the way that it takes itself."""
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
