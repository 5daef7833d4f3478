"""The four terms of L_S6MOD as pure functions of what the branch computed; their weights are not here.

Each returns the mean over the batch, unweighted, in full precision. Targets are distributions q (B, num_classes),
whose one-hot rows give the paper's formulas and whose two-entry rows those for mixed samples.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.branch.precision import full_precision

EPSILON = 1e-6  # below this length a vector is shrunk, not blown up, by normalisation


@full_precision
def dot_regression(cosines: Tensor, q: Tensor) -> Tensor:
    """L_DR: 0.5 (mu . w_y - 1)^2, weighted by q over the classes y; ``cosines`` mu . w are (B, num_classes)."""
    return 0.5 * (q * (cosines - 1).square()).sum(1).mean()


@full_precision
def divergence(base_logits: Tensor, branch_logits: Tensor, direction: str = "pq") -> Tensor:
    """L_Diff: KL(P || Q) for ``pq``, KL(Q || P) for ``qp``; P is the base method's softmax, Q the branch's."""
    log_p, log_q = F.log_softmax(base_logits, dim=1), F.log_softmax(branch_logits, dim=1)
    if direction == "qp":
        log_p, log_q = log_q, log_p
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


@full_precision
def contrastive_discretization(delta: Tensor, q: Tensor) -> Tensor:
    """L_Cont: -(1 / B^2) sum_mn s_mn cos(Delta_m, Delta_n); s is 1 for one class, -1 for two (2 q_m . q_n - 1)."""
    direction = F.normalize(delta.flatten(1), dim=1, eps=EPSILON)  # (B, K * R * L)
    sign = 2 * q @ q.T - 1  # (B, B)
    return -(sign * (direction @ direction.T)).mean()


@full_precision
def z_loss(gate_logits: Tensor) -> Tensor:
    """L_z: (log sum_i exp g_i)^2 of the gate logits g (B, num_patterns)."""
    return torch.logsumexp(gate_logits, dim=1).square().mean()
