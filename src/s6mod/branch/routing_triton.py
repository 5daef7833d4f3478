"""What the routing does in a training step as four Triton kernels, three to update and one to ask, in float32.

What is computed is defined by ``plain_update`` and ``Routing.count`` in ``routing``, which imports this module where
there is Triton. Distances are summed from differences of prototypes, so that there is nothing to centre. A program
adds in an order that is always the same, and no two write to one place, so that results are the same bits every time.
Buffers are updated where they lie, since captured steps know them by their addresses.
"""

# Triton compiles the kernels itself, and their blocks and pointers have no types that mypy knows.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from s6mod.branch.routing import Routing

SAMPLES, COLUMNS = 32, 128  # of the features, in the registers of a program at a time
TILE = 16  # classes by classes whose distances a program sums
STRIP = 32  # columns of the prototypes that it takes at a time
PROGRAMS = 1056  # that sum side by side: eight for each of an H200's processors
MAX_PARTS = 32  # in which the columns are summed
CLASSES = 128  # that a program looks at at a time
ROWS = 8  # samples whose N a program finds
MOST_BLOCKS = 65535  # that CUDA allows side by side in a grid's second direction


def suits(prototypes: Tensor) -> bool:
    """Whether kernels exist: float32, and places in the prototypes that 32 bits can count."""
    blocks = triton.cdiv(prototypes.shape[1], COLUMNS)
    return prototypes.dtype == torch.float32 and prototypes.numel() < 2**31 and blocks <= MOST_BLOCKS


def update(routing: "Routing", features: Tensor, members: Tensor) -> None:
    """As ``Routing.update`` with absolute distances, for features (B, num_features)."""
    prototypes = routing.prototypes
    classes, columns = prototypes.shape
    assert features.shape == (len(members), columns), f"features {tuple(features.shape)}, prototypes of {columns}"
    assert members.shape[1] == classes, f"members of {members.shape[1]} classes, prototypes of {classes}"
    seen = routing.seen.view(torch.uint8)
    tiles = triton.cdiv(classes, TILE)
    part = _columns_of_a_part(columns, tiles)
    parts = triton.cdiv(columns, part)
    counts = prototypes.new_empty(classes)
    squares = prototypes.new_empty(parts, classes, classes)
    with torch.cuda.device_of(prototypes):  # Triton launches on the current device
        _move_prototypes[(classes, triton.cdiv(columns, COLUMNS))](
            features.contiguous(), members.contiguous(), prototypes, seen, counts, len(members), 1 - routing.momentum,
            classes=classes, columns=columns, BLOCK_B=SAMPLES, BLOCK_F=COLUMNS, num_warps=4,
        )  # fmt: skip
        _sum_squares[(tiles, tiles, parts)](
            prototypes, squares, classes=classes, columns=columns, PART=part, BLOCK=TILE, BLOCK_F=STRIP, num_warps=4
        )
        _find_sigma[(classes,)](
            squares, counts, seen, routing.sigma, routing.lambda0, classes=classes, parts=parts,
            PARTS=triton.next_power_of_2(parts), BLOCK=CLASSES, LARGEST=routing.aggregate == "max", num_warps=4,
        )  # fmt: skip


def count_for_targets(routing: "Routing", q: Tensor) -> Tensor:
    """As ``Routing.count_for_targets`` without ``fixed_patterns``."""
    classes = len(routing.sigma)
    assert q.shape[1] == classes, f"q of {q.shape[1]} classes, sigma of {classes}"
    count = q.new_empty(len(q))
    with torch.cuda.device_of(q):
        _count_patterns[(triton.cdiv(len(q), ROWS),)](
            q.contiguous(), routing.sigma, count, len(q), classes=classes, E=routing.num_patterns,
            CEIL=routing.rounding == "ceil", BLOCK_B=ROWS, BLOCK=CLASSES, num_warps=4,
        )  # fmt: skip
    return count


def _columns_of_a_part(columns: int, tiles: int) -> int:
    """How many columns of the prototypes a program sums over: whole strips, and enough programs to fill the device."""
    parts = min(max(PROGRAMS // tiles**2, 1), MAX_PARTS)
    return int(triton.cdiv(triton.cdiv(columns, parts), STRIP)) * STRIP


# Batches change their size from step to step: compiled in are neither it nor what divides it.
@triton.jit(do_not_specialize=["batch"])
def _move_prototypes(
    features, members, prototypes, seen, counts, batch, step,
    classes: tl.constexpr, columns: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Some columns of the prototype of one class, which go to the batch mean at first sight, later a step towards it.

    Of the features only the class's own are read. ``seen`` stays as it is, since other programs ask for it.
    """
    c = tl.program_id(0)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    total = tl.zeros([BLOCK_B, BLOCK_F], tl.float32)
    count = 0.0
    start = 0
    while start < batch:
        b = start + tl.arange(0, BLOCK_B)
        member = tl.load(members + b * classes + c, b < batch, 0)
        number = tl.sum(member, 0)
        if number > 0:
            at = b[:, None].to(tl.int64) * columns + f[None, :]
            total += member[:, None] * tl.load(features + at, (member != 0)[:, None] & (f < columns)[None, :], 0)
        count += number
        start += BLOCK_B
    if tl.program_id(1) == 0:
        tl.store(counts + c, count)
    if count > 0:
        mean = tl.sum(total, 0) / tl.maximum(count, 1)
        here = prototypes + c * columns + f
        before = tl.load(here, f < columns, 0)
        known = tl.load(seen + c) != 0
        tl.store(here, tl.where(known, before + step * (mean - before), mean), f < columns)


@triton.jit
def _sum_squares(
    prototypes, squares, classes: tl.constexpr, columns: tl.constexpr,
    PART: tl.constexpr, BLOCK: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """Over a part of the columns, squared distances of two blocks of classes; once for each pair of blocks."""
    if tl.program_id(0) <= tl.program_id(1):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        part = tl.program_id(2)
        total = tl.zeros([BLOCK, BLOCK, BLOCK_F], tl.float32)
        for start in range(0, PART, BLOCK_F):
            f = part * PART + start + tl.arange(0, BLOCK_F)[None, None, :]
            inside = f < columns
            ours = tl.load(prototypes + i[:, None, None] * columns + f, (i < classes)[:, None, None] & inside, 0)
            theirs = tl.load(prototypes + j[None, :, None] * columns + f, (j < classes)[None, :, None] & inside, 0)
            apart = ours - theirs  # (BLOCK, BLOCK, BLOCK_F)
            total += apart * apart
        at = (part * classes + i[:, None]) * classes + j[None, :]
        tl.store(squares + at, tl.sum(total, 2), (i < classes)[:, None] & (j < classes)[None, :])


@triton.jit
def _find_sigma(
    squares, counts, seen, sigma, lambda0,
    classes: tl.constexpr, parts: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    """sigma of one class, and whether it has been seen.

    Others may have stored theirs in ``seen`` already, or not yet. A class counts as seen if it was before or is in the
    batch, so the answer is the same either way.
    """
    i = tl.program_id(0)
    part = tl.arange(0, PARTS)[:, None]
    value = tl.zeros([BLOCK], tl.float32)
    number = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        j = start + tl.arange(0, BLOCK)
        at = tl.minimum(i, j) * classes + tl.maximum(i, j)  # the other half is not there
        inside = (part < parts) & (j < classes)[None, :]
        distance = tl.sqrt_rn(tl.sum(tl.load(squares + part * classes * classes + at[None, :], inside, 0), 0))
        other = _is_seen(seen, counts, j, j < classes) & (j != i)
        closeness = tl.where(other, tl.exp(-lambda0 * distance), 0)
        value = tl.maximum(value, closeness) if LARGEST else value + closeness
        number += other.to(tl.float32)
    known = _is_seen(seen, counts, i, i < classes)
    others = tl.sum(number, 0)
    found = tl.max(value, 0) if LARGEST else tl.div_rn(tl.sum(value, 0), tl.maximum(others, 1))
    tl.store(sigma + i, tl.where(known & (others > 0), found, 1))
    tl.store(seen + i, known.to(tl.uint8))


@triton.jit
def _is_seen(seen, counts, c, inside):
    return (tl.load(seen + c, inside, 0) != 0) | (tl.load(counts + c, inside, 0) > 0)


@triton.jit(do_not_specialize=["batch"])
def _count_patterns(
    q, sigma, count, batch,
    classes: tl.constexpr, E: tl.constexpr, CEIL: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """N of some samples: E times the sigma of their classes, weighed by q, to a whole number from 1 to E."""
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    total = tl.zeros([BLOCK_B, BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        c = start + tl.arange(0, BLOCK)
        inside = (b < batch)[:, None] & (c < classes)[None, :]
        total += tl.load(q + b[:, None] * classes + c[None, :], inside, 0) * tl.load(sigma + c, c < classes, 0)[None, :]
    wanted = E * tl.sum(total, 1)
    whole = tl.floor(wanted)
    over = wanted - whole
    odd = whole != 2 * tl.floor(whole / 2)
    up = over > 0 if CEIL else (over > 0.5) | ((over == 0.5) & odd)  # a half goes to the even neighbour
    tl.store(count + b, tl.minimum(tl.maximum(tl.where(up, whole + 1, whole), 1), E), b < batch)
