"""The four terms of L_S6MOD as pure functions of what the branch computed; their weights are not here.

Each returns the mean over the batch, unweighted. Targets are distributions q (B, num_classes), whose one-hot rows give
the paper's formulas and whose two-entry rows those for mixed samples. Each is written so as to launch few kernels, back
and forth: on small batches their number is what takes the time.
"""

import math

from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-6  # a vector shorter than about this is not blown up to unit length


def unit(x: Tensor) -> Tensor:
    """The rows of x (B, n) as vectors of length 1."""
    n = x.shape[1]
    return F.rms_norm(x, (n,), eps=EPSILON**2 / n) / math.sqrt(n)


def dot_regression(cosines: Tensor, q: Tensor) -> Tensor:
    """L_DR: 0.5 (mu . w_y - 1)^2, weighted by q over the classes y; ``cosines`` mu . w are (B, num_classes)."""
    root = (0.5 / len(q) * q).sqrt()
    return F.mse_loss(root * cosines, root, reduction="sum")


def divergence(base_logits: Tensor, branch_logits: Tensor, direction: str = "pq") -> Tensor:
    """L_Diff: KL(P || Q) for ``pq``, KL(Q || P) for ``qp``; P is the base method's softmax, Q the branch's."""
    log_p, log_q = F.log_softmax(base_logits, dim=1), F.log_softmax(branch_logits, dim=1)
    if direction == "qp":
        log_p, log_q = log_q, log_p
    return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)


def contrastive_discretization(delta: Tensor, q: Tensor) -> Tensor:
    """L_Cont: -(1 / B^2) sum_mn s_mn cos(Delta_m, Delta_n); s is 1 for one class, -1 for two (2 q_m . q_n - 1)."""
    direction = unit(delta.flatten(1))  # (B, L * K * R)
    against = 1 - 2 * (q @ q.T)  # -s, (B, B)
    return (against * (direction @ direction.T)).mean()


def z_loss(gate_logits: Tensor) -> Tensor:
    """L_z: (log sum_i exp g_i)^2 of the gate logits g (B, num_patterns)."""
    return F.mse_loss(gate_logits, F.log_softmax(gate_logits, dim=1))  # their difference is log sum_i exp g_i
