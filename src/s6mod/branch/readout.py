"""How the scan becomes one feature: mu, which the ETF classifies.

``readout`` is the one to use; on a GPU it is one kernel of ``readout_triton`` forwards, and one and a sum backwards.
``plain_readout`` says what it computes.
"""

from torch import Tensor
from torch.nn import functional as F

from s6mod.branch import losses
from s6mod.kernels import kernels_for


def readout(y: Tensor, Z: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float) -> Tensor:
    """mu (B, d) of length 1: the mean over positions of silu(Z) LayerNorm(y); y and Z are (B, L, d).

    Weight and bias (d,) and ``eps`` are those of the normalisation. The kernels are for float32 and samples that are
    not very large; Z may be a part of a wider tensor and is not copied.
    """
    kernels = kernels_for(y, "s6mod.branch.readout_triton")
    suited = kernels is not None and kernels.suits(y, Z, norm_weight, norm_bias)
    mu: Tensor = (kernels.readout if suited else plain_readout)(y, Z, norm_weight, norm_bias, eps)
    return mu


def plain_readout(y: Tensor, Z: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float) -> Tensor:
    """``readout`` in PyTorch, for any device and floating type."""
    mean = (F.silu(Z) * F.layer_norm(y, norm_weight.shape, norm_weight, norm_bias, eps)).mean(1)
    return losses.unit(mean)
