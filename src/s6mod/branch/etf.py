"""The fixed classifier of the branch: one unit vector for each class, far from all others.

``simplex`` is the paper's equiangular tight frame, made for a known number of classes. In ``orthogonal``, vectors stay
when classes are added, and there may be more of them than dimensions. Neither is trained; both travel with the state.
"""

import math
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

from s6mod.errors import ConfigError

Frame = Literal["simplex", "orthogonal"]
LEAST = 8  # dimensions of an orthogonal frame of several bases; in fewer, bases coincide


def check_width(d_inner: int, num_classes: int, frame: Frame = "simplex") -> None:
    """Refuse a width in which so many vectors do not exist."""
    if num_classes < 2:
        raise ConfigError(f"expected at least 2 classes, got {num_classes}; count those of the whole stream")
    if d_inner >= num_classes:
        return
    if frame == "simplex":
        roomy = 1 << (num_classes - 1).bit_length()
        raise ConfigError(
            f"expected d_inner at least the number of classes ({num_classes}), got {d_inner}; "
            f"set branch.d_inner={roomy} or branch.frame=orthogonal"
        )
    if d_inner < LEAST or d_inner & (d_inner - 1) or num_classes > d_inner * (d_inner + 1):
        roomy = LEAST
        while num_classes > roomy * (roomy + 1):
            roomy *= 2
        raise ConfigError(
            f"expected d_inner a power of two, at least {roomy}, for an orthogonal frame of {num_classes} classes, "
            f"got {d_inner}; set branch.d_inner={max(roomy, 1 << d_inner.bit_length())}"
        )


class ETF(nn.Module):
    """The class vectors of a frame as columns.

    ``simplex``: W_ETF = sqrt(C / (C - 1)) U (I - 1 1^T / C), U a random d x C matrix with orthonormal columns.
    ``orthogonal``: see ``frame_rows``.
    """

    weight: Tensor  # (d, C) unit columns; of a simplex with pairwise cosine -1 / (C - 1)

    def __init__(self, d_inner: int, num_classes: int, frame: Frame = "simplex") -> None:
        super().__init__()
        check_width(d_inner, num_classes, frame)
        if frame == "simplex":
            U, _ = torch.linalg.qr(torch.randn(d_inner, num_classes, dtype=torch.float64))
            centred = U - U.mean(1, keepdim=True)  # U (I - 1 1^T / C)
            weight = math.sqrt(num_classes / (num_classes - 1)) * centred
        else:
            seed = int(torch.randint(2**62, ()))  # one draw, whatever the number of classes
            weight = frame_rows(0, num_classes, d_inner, seed).T.contiguous()
        self.register_buffer("weight", weight.to(torch.get_default_dtype()))  # as the parameters around it

    def forward(self, mu: Tensor) -> Tensor:
        """Cosines of unit features mu (B, d) with every class vector, (B, C)."""
        return mu @ self.weight


def frame_rows(start: int, stop: int, d: int, seed: int) -> Tensor:
    """The vectors of classes ``start`` to ``stop`` - 1 in an orthogonal frame, (stop - start, d) float64.

    A vector depends on its number, d and seed alone, so that those of old classes stay when others come. They are
    orthonormal bases of d vectors, one after the other. The first is random, q_x. In the basis a after it, a = 0 ...
    d - 1, number y is sum_x (-1)^(<a, x^3> + <y, x>) q_x / sqrt(d): a column of Q D_a H, with signs D_a and a Hadamard
    matrix H. x^3 is taken in the field of d = 2^m elements, whose bits < , > multiplies. Cosines are 1 / sqrt(d) with
    the first basis. Two others differ by a quadratic form of rank m - 1 (m odd) or at least m - 2 (m even), so that
    theirs are at most sqrt(2 / d) or 2 / sqrt(d).
    """
    check_width(d, max(stop, 2), "orthogonal")
    random = torch.Generator().manual_seed(seed)
    Q, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=random))  # its columns are q_x
    first = start // d
    # Whole bases, so that a vector has the same bits whatever is asked for beside it.
    bases = torch.cat([_signs(number - 1, d) @ Q.T if number else Q.T for number in range(first, -(-stop // d))])
    return bases[start - first * d : stop - first * d]


def _signs(a: int, d: int) -> Tensor:
    """(D_a H)^T: (d, d) float64, row y holding (-1)^(<a, x^3> + <y, x>) / sqrt(d)."""
    x, cubes = torch.arange(d), torch.tensor(_cubes(d))
    odd = _parity(a & cubes) ^ _parity(x[:, None] & x)
    return (1 - 2 * odd).double() / math.sqrt(d)


def _parity(numbers: Tensor) -> Tensor:
    """Whether the number of bits is odd, 0 or 1, of numbers below 2^32."""
    for shift in (16, 8, 4, 2, 1):
        numbers = numbers ^ (numbers >> shift)
    return numbers & 1


@cache
def _cubes(size: int) -> tuple[int, ...]:
    """x^3 for all x in the field of ``size`` = 2^m elements: polynomials of bits modulo one that has no divisor."""
    divisors = range(2, 1 << (size.bit_length() // 2 + 1))  # of at most half the degree
    prime = next(p for p in range(size + 1, 2 * size, 2) if all(_remainder(p, q) for q in divisors))
    return tuple(_remainder(_product(_product(x, x), x), prime) for x in range(size))


def _product(a: int, b: int) -> int:
    """Of polynomials of bits: a multiplication that carries nothing."""
    total = 0
    while b:
        total ^= a * (b & 1)
        a, b = a << 1, b >> 1
    return total


def _remainder(a: int, by: int) -> int:
    while a.bit_length() >= by.bit_length():
        a ^= by << (a.bit_length() - by.bit_length())
    return a
