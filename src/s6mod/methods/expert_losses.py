"""The losses of MOSE's experts: pure functions of tensors (B, E, ...), each summed over the E experts.

Which samples and which experts a loss is given is decided in ``mose``.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from s6mod.precision import full_precision


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples and sum over experts, of ``logits`` (B, E, C); nothing of no samples."""
    B, E, _ = logits.shape
    total = F.cross_entropy(logits.flatten(0, 1), labels[:, None].expand(B, E).flatten(), reduction="sum")
    return total / max(B, 1)


@full_precision
def supervised_contrastive(projections: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """SCL summed over the experts of ``projections`` (B, E, P).

    Minus the log-softmax of cosine / temperature over all other samples: its mean over those of the same label, and
    then over the anchors that have any.
    """
    z = F.normalize(projections, dim=2).transpose(0, 1)  # (E, B, P)
    similarity = z @ z.mT / temperature  # (E, B, B)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = ((labels[:, None] == labels) & ~itself).to(z.dtype)  # (B, B)
    log_p = similarity - similarity.masked_fill(itself, -torch.inf).logsumexp(2, keepdim=True)
    count = positive.sum(1)  # (B,)
    per_anchor = (log_p * positive).sum(2) / count.clamp(min=1)  # (E, B); 0 of an anchor without positives
    return -per_anchor.sum() / (count > 0).sum().clamp(min=1)


@full_precision
def distillation(student: Tensor, features: Tensor) -> Tensor:
    """The student (B, F) drawn to each teacher of ``features`` (B, E, F): Frobenius norms over the batch, summed."""
    difference = F.normalize(student, dim=1)[:, None] - F.normalize(features.detach(), dim=2)
    norms: Tensor = torch.linalg.vector_norm(difference, dim=(0, 2))  # (E,)
    return norms.sum()
