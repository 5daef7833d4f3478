"""What OCM and OnPro share: rotated images, each rotation a class of its own, and the losses that contrast them.

The losses are pure functions of projections, features and pseudo-labels. All of them turn a matrix S of similarities
into -log probabilities with temperature tau,

    E_ij = exp((S_ij - max_k S_ik) / tau),    l_ij = -log(E_ij / (sum_k E_ik + epsilon) + epsilon),

and average l_ij over the positives P_i = {j : label_j = label_i}. The row maximum, diagonal included, has no gradient.
Epsilon is not cosmetic: it caps every l_ij, and the gradient of very dissimilar pairs vanishes. Everything is
computed in float32 (or wider) also under autocast, since bfloat16 would round S by more than the temperature bears.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.augment import rotate16, rotate16_labels
from s6mod.augment.base import Augment
from s6mod.errors import InputError
from s6mod.methods.base import Method, MethodConfig, Peer
from s6mod.networks.projection import ProjectedAdapted, ProjectedOutput, ProjectedResNet18
from s6mod.precision import full_precision

EPSILON = 1e-8  # added to norms, to denominators and inside logarithms
FIRST_SCALE = 1.0  # c in the first task


class ContrastiveConfig(MethodConfig):
    """Options of the contrastive losses."""

    projection_width: int = Field(
        128,
        ge=1,
        description="width of the projection and of the slice of features compared with it (all, if there are fewer)",
    )
    temperature: float = Field(0.07, gt=0, description="tau, by which similarities are divided")
    scale: float = Field(1.0, gt=0, description="c, which multiplies similarities after the first task")


@dataclass(frozen=True)
class Rotated:
    """Sixteen variants of n images, each a class of its own, as they are and then augmented."""

    images: Tensor  # (2 * 16 n, C, H, W) float
    labels: Tensor  # (2 * 16 n,)


class ContrastiveMethod(Method):
    """A method that contrasts rotated images by projections of their features."""

    config: ContrastiveConfig
    augment: Augment[Any]

    def __init__(self, config: ContrastiveConfig, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(config, image_shape, num_classes)
        rotate16(torch.empty(1, *image_shape))  # refuses images that cannot be rotated before any is learned

    def make_network(self) -> ProjectedResNet18:
        """ResNet-18 with a projection."""
        config = self.config
        return ProjectedResNet18(config.network, self.image_shape, self.num_classes, config.projection_width)

    def adapt(self, module: nn.Module) -> ProjectedAdapted:
        """A person's module with a projection."""
        return ProjectedAdapted(module, self.image_shape, self.num_classes, self.config.projection_width)

    def check_images(self, count: int) -> None:
        """Refuse, before a step, a number of images that BatchNorm cannot normalise when cross-entropy sees them."""
        height, width = self.image_shape[1:]
        if count == 1 and max(height, width) <= 8:
            raise InputError(
                f"expected at least two images of {height}x{width} pixels for a step, got one, whose last map is a "
                "single value; give larger batches, or a larger memory and memory_batch, or larger images"
            )

    def rotate(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Rotated:
        """[R16 x ; A R16 x] of images x (n, C, H, W), uint8 or prepared."""
        variants = rotate16(images)
        plain = self.prepare(variants) if variants.dtype == torch.uint8 else variants
        both = torch.cat([plain, self.augment(variants, generator)])
        return Rotated(both, rotate16_labels(labels, self.num_classes).repeat(2))

    def contrast(
        self, peer: Peer, blocks: Sequence[Rotated], generator: torch.Generator
    ) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """One pass over the stream and, after the first task, the memory: projections of each, and L_n and L_uni."""
        tau = self.config.temperature
        scale = FIRST_SCALE if len(blocks) == 1 else self.config.scale
        rows = [len(block.images) for block in blocks]
        out: ProjectedOutput = peer.network(torch.cat([block.images for block in blocks]))
        z, S = out.projection.split(rows), []
        for z_block, f in zip(z, out.features.split(rows), strict=True):
            start = slice_start(f.shape[1], z_block.shape[1], generator, f.device)
            S.append(similarity(z_block, f, start, scale, EPSILON))
        terms = {"new": new_loss(S[0], blocks[0].labels, tau, EPSILON)}
        if len(blocks) > 1:
            terms["uniform"] = uniform_loss(S[1], blocks[1].labels, tau, EPSILON)
        return z, terms


# --- losses ---------------------------------------------------------------------------------------------------


@full_precision
def unit(v: Tensor, epsilon: float) -> Tensor:
    """The rows of v (R, n) divided by their length, to which epsilon is added."""
    length: Tensor = torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return v / (length + epsilon)


def slice_start(num_features: int, width: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """A random first column (1,) of a slice of ``width`` features, uniform in 0 ... num_features - width - 1.

    It stays on the device. Where there are not more than ``width`` features it is 0.
    """
    return torch.randint(max(num_features - width, 1), (1,), generator=generator, device=device)


@full_precision
def similarity(z: Tensor, f: Tensor, start: Tensor, scale: float, epsilon: float) -> Tensor:
    """S = scale * (z z^T + z [f]_{start : start + P}^T), (R, R), of normalised projections z (R, P) and features f.

    The features (R, F) are normalised over their full width; the slice of them is not normalised again. A network with
    fewer than P features (a narrow one, for a test or a small device) has them all compared with the first F columns
    of z; ``start`` (1,) is then 0.
    """
    width = min(z.shape[1], f.shape[1])
    columns = start + torch.arange(width, device=f.device)
    part = F.pad(unit(f, epsilon).index_select(1, columns), (0, z.shape[1] - width))  # (R, P)
    z = unit(z, epsilon)
    return scale * (z @ (z + part).T)


@full_precision
def new_loss(S: Tensor, labels: Tensor, temperature: float, epsilon: float) -> Tensor:
    """L_n: mean_i l_{i, pair(i)} + 2 mean_i (1 / |P_i|) sum_{j in P_i} l_ij, self-similarity counting as E_ii = 0.

    Rows of S (R, R) and ``labels`` (R,) are two views of the same images, one after the other; pair(i) is row i's
    image in the other view. The row itself is in P_i, so that it adds the constant -log(epsilon) / |P_i|.
    """
    pair = len(S) // 2
    losses = _pair_losses(S, temperature, epsilon, self_pairs=False)
    across = torch.cat([losses.diagonal(pair), losses.diagonal(-pair)]).mean()
    return across + 2 * _mean_over_positives(losses, labels)


@full_precision
def uniform_loss(S: Tensor, labels: Tensor, temperature: float, epsilon: float) -> Tensor:
    """L_uni: mean_i (1 / |P_i|) sum_{j in P_i} l_ij; the diagonal is a pair like all others."""
    return _mean_over_positives(_pair_losses(S, temperature, epsilon, self_pairs=True), labels)


@full_precision
def previous_loss(z: Tensor, z_previous: Tensor, labels: Tensor, temperature: float, epsilon: float) -> Tensor:
    """L_pre: L_uni of the cosines of projections z (R, P), as rows, with those of the previous model, as columns."""
    return uniform_loss(unit(z, epsilon) @ unit(z_previous, epsilon).T, labels, temperature, epsilon)


def _pair_losses(S: Tensor, temperature: float, epsilon: float, self_pairs: bool) -> Tensor:
    """All l_ij, (R, R)."""
    E = ((S - S.detach().amax(1, keepdim=True)) / temperature).exp()
    if not self_pairs:
        E = E.diagonal_scatter(E.new_zeros(len(E)))
    return -(E / (E.sum(1, keepdim=True) + epsilon) + epsilon).log()


def _mean_over_positives(losses: Tensor, labels: Tensor) -> Tensor:
    """mean_i (1 / |P_i|) sum_{j in P_i} l_ij."""
    positive = (labels[:, None] == labels).to(losses.dtype)
    return ((losses * positive).sum(1) / positive.sum(1)).mean()
