"""The four terms of L_S6MOD as pure functions of what the branch computed; their weights are not here.

Each returns the mean over the batch, unweighted. Targets are distributions q (B, num_classes), whose one-hot rows give
the paper's formulas and whose two-entry rows those for mixed samples. On small batches the number of kernels is what
takes the time: on a GPU a term is one of ``losses_triton`` each way, unless it is large or not in float32. The plain
functions say what is computed, and launch few kernels too.
"""

import math
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from s6mod.kernels import kernels_for

EPSILON = 1e-6  # a vector shorter than about this is not blown up to unit length


def unit(x: Tensor) -> Tensor:
    """The rows of x (B, n) as vectors of length 1."""
    n = x.shape[1]
    return F.rms_norm(x, (n,), eps=EPSILON**2 / n) / math.sqrt(n)


def dot_regression(cosines: Tensor, q: Tensor) -> Tensor:
    """L_DR: 0.5 (mu . w_y - 1)^2, weighted by q over the classes y; ``cosines`` mu . w are (B, num_classes)."""
    kernels = None if q.requires_grad else _kernels(cosines, q)
    term: Tensor = (plain_dot_regression if kernels is None else kernels.dot_regression)(cosines, q)
    return term


def plain_dot_regression(cosines: Tensor, q: Tensor) -> Tensor:
    """``dot_regression`` in PyTorch, for any device and floating type."""
    root = (0.5 / len(q) * q).sqrt()
    return F.mse_loss(root * cosines, root, reduction="sum")


def divergence(base_logits: Tensor, branch_logits: Tensor, direction: str = "pq") -> Tensor:
    """L_Diff: KL(P || Q) for ``pq``, KL(Q || P) for ``qp``; P is the base method's softmax, Q the branch's."""
    first, second = (branch_logits, base_logits) if direction == "qp" else (base_logits, branch_logits)
    kernels = _kernels(first, second)
    term: Tensor = (plain_divergence if kernels is None else kernels.divergence)(first, second)
    return term


def plain_divergence(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(P || Q) in PyTorch, for any device and floating type."""
    log_p, log_q = F.log_softmax(p_logits, dim=1), F.log_softmax(q_logits, dim=1)
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def contrastive_discretization(delta: Tensor, q: Tensor) -> Tensor:
    """L_Cont: -(1 / B^2) sum_mn s_mn cos(Delta_m, Delta_n); s is 1 for one class, -1 for two (2 q_m . q_n - 1)."""
    direction = unit(delta.flatten(1))  # (B, L * K * R)
    against = 1 - 2 * (q @ q.T)  # -s, (B, B)
    return (against * (direction @ direction.T)).mean()


def z_loss(gate_logits: Tensor) -> Tensor:
    """L_z: (log sum_i exp g_i)^2 of the gate logits g (B, num_patterns)."""
    kernels = _kernels(gate_logits)
    term: Tensor = (plain_z_loss if kernels is None else kernels.z_loss)(gate_logits)
    return term


def plain_z_loss(gate_logits: Tensor) -> Tensor:
    """``z_loss`` in PyTorch, for any device and floating type."""
    return F.mse_loss(gate_logits, F.log_softmax(gate_logits, dim=1))  # their difference is log sum_i exp g_i


def _kernels(*given: Tensor) -> Any:
    """``losses_triton``, or None where the plain functions must do."""
    kernels = kernels_for(given[0], "s6mod.branch.losses_triton")
    return kernels if kernels is not None and kernels.suits(*given) else None
