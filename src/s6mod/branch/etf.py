"""The fixed classifier of the branch: a simplex equiangular tight frame.

It is drawn once and never trained; it travels with the state.
"""

import math

import torch
from torch import Tensor, nn

from s6mod.errors import ConfigError


def check_width(d_inner: int, num_classes: int) -> None:
    """Refuse a width in which so many equiangular vectors do not exist."""
    if num_classes < 2:
        raise ConfigError(f"expected at least 2 classes, got {num_classes}; count those of the whole stream")
    if d_inner < num_classes:
        roomy = 1 << (num_classes - 1).bit_length()
        raise ConfigError(
            f"expected d_inner at least the number of classes ({num_classes}), got {d_inner}; "
            f"set branch.d_inner={roomy}"
        )


class ETF(nn.Module):
    """W_ETF = sqrt(C / (C - 1)) U (I - 1 1^T / C), U a random d x C matrix with orthonormal columns."""

    weight: Tensor  # (d, C): unit columns with pairwise cosine -1 / (C - 1)

    def __init__(self, d_inner: int, num_classes: int) -> None:
        super().__init__()
        check_width(d_inner, num_classes)
        U, _ = torch.linalg.qr(torch.randn(d_inner, num_classes, dtype=torch.float64))
        centred = U - U.mean(1, keepdim=True)  # U (I - 1 1^T / C)
        weight = math.sqrt(num_classes / (num_classes - 1)) * centred
        self.register_buffer("weight", weight.to(torch.get_default_dtype()))  # as the parameters around it

    def forward(self, mu: Tensor) -> Tensor:
        """Cosines of unit features mu (B, d) with every class vector, (B, C)."""
        return mu @ self.weight
