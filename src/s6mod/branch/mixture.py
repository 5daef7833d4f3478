"""Mixture of discretization: several patterns of Delta and the gate that weighs them.

How many patterns a sample may use is decided by the routing, not here.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.branch.scan import NUM_DIRECTIONS
from s6mod.kernels import kernels_for


class Gate(nn.Module):
    """Importance weights of the patterns from X^ averaged over positions.

    ``noisy`` adds Gaussian noise of a learned size to the logits of a call that explores. ``leaky`` lets a dropped
    pattern keep exp(0) in the softmax, so that it is still used a little; otherwise its weight is 0.
    """

    def __init__(self, d_inner: int, num_patterns: int, *, noisy: bool = False, leaky: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(d_inner, num_patterns)
        self.noise = nn.Linear(d_inner, num_patterns, bias=False) if noisy else None
        self.leaky = leaky

    def forward(
        self, X_hat: Tensor, count: Tensor, explore: bool = False, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits g (without noise) and weights w, both (B, E), of X^ (B, L, d).

        The ``count`` (B,) patterns with the largest logits are kept; the weights are the softmax over them.
        """
        if self.noise is None or not explore:
            return gate(X_hat, self.linear.weight, self.linear.bias, count, self.leaky)
        mean = X_hat.mean(1)
        logits: Tensor = self.linear(mean)
        draw = torch.randn(logits.shape, generator=generator, device=logits.device, dtype=logits.dtype)
        noisy = logits + draw * F.softplus(self.noise(mean))
        return logits, gate_weights(noisy, count, self.leaky)


def gate(X_hat: Tensor, weight: Tensor, bias: Tensor, count: Tensor, leaky: bool = False) -> tuple[Tensor, Tensor]:
    """Logits and weights, both (B, E), of a ``Gate`` without noise, whose linear map is (E, d) and (E,).

    On a GPU it is one kernel of ``gate_triton`` forwards, and one and a sum backwards, unless patterns or channels are
    many or not in float32.
    """
    kernels = kernels_for(X_hat, "s6mod.branch.gate_triton")
    suited = kernels is not None and kernels.suits(X_hat, weight, bias, count)
    logits, weights = (kernels.gate if suited else plain_gate)(X_hat, weight, bias, count, leaky)
    return logits, weights


def plain_gate(
    X_hat: Tensor, weight: Tensor, bias: Tensor, count: Tensor, leaky: bool = False
) -> tuple[Tensor, Tensor]:
    """``gate`` in PyTorch, for any device and floating type; the weights may still have a kernel of their own."""
    logits = F.linear(X_hat.mean(1), weight, bias)
    return logits, gate_weights(logits, count, leaky)


def gate_weights(logits: Tensor, count: Tensor, leaky: bool = False) -> Tensor:
    """The softmax (B, E) over the ``count`` (B,) largest logits of each row; see ``Gate``.

    On a GPU it is one kernel of ``gate_triton`` each way, unless patterns are many or not in float32.
    """
    kernels = kernels_for(logits, "s6mod.branch.gate_triton")
    suited = kernels is not None and kernels.suits_weights(logits, count)
    weights: Tensor = (kernels.gate_weights if suited else plain_gate_weights)(logits, count, leaky)
    return weights


def plain_gate_weights(logits: Tensor, count: Tensor, leaky: bool = False) -> Tensor:
    """``gate_weights`` in PyTorch, for any device and floating type."""
    # Places instead of a threshold: exactly ``count`` patterns are kept even where logits are equal.
    best_first = logits.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(logits.shape[1], device=logits.device)
    dropped = torch.empty_like(logits, dtype=torch.bool).scatter_(1, best_first, places >= count[:, None])
    return logits.masked_fill(dropped, 0.0 if leaky else -math.inf).softmax(dim=1)


@torch.no_grad()
def note_means(count: Tensor, weights: Tensor, mean_count: Tensor, mean_weights: Tensor) -> None:
    """Write the means over samples of ``count`` (B,) and ``weights`` (B, E) into ``mean_count`` and ``mean_weights``.

    On a GPU it is one kernel of ``gate_triton``, unless samples are very many or not in float32.
    """
    kernels = kernels_for(weights, "s6mod.branch.gate_triton")
    suited = kernels is not None and kernels.suits_means(count, weights, mean_count, mean_weights)
    (kernels.note_means if suited else plain_note_means)(count, weights, mean_count, mean_weights)


def plain_note_means(count: Tensor, weights: Tensor, mean_count: Tensor, mean_weights: Tensor) -> None:
    """``note_means`` in PyTorch, for any device and floating type."""
    torch.mean(count, 0, out=mean_count)
    torch.mean(weights, 0, out=mean_weights)


class Patterns(nn.Module):
    """The discretization candidates f_i, each a linear map d -> R per direction, and their weighted sum."""

    def __init__(self, d_inner: int, dt_rank: int, num_patterns: int) -> None:
        super().__init__()
        bound = d_inner**-0.5
        weight = torch.empty(num_patterns, d_inner, NUM_DIRECTIONS, dt_rank)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))

    def forward(self, X_hat: Tensor, weights: Tensor) -> Tensor:
        """Delta = sum_i w_i f_i(X^): (B, L, d), (B, E) -> (B, L, K, R)."""
        _, d, directions, rank = self.weight.shape
        # The f_i are linear: summing their matrices for each sample is cheaper than summing their outputs.
        mixed = (weights @ self.weight.flatten(1)).view(-1, d, directions * rank)
        return (X_hat @ mixed).view(*X_hat.shape[:2], directions, rank)
