"""A setting of the C library's threads that training steps on a busy CPU gain from.

Threads of a parallel operation wait for each other by spinning, for longer than most operations of a small step take.
Where other programs want the same cores, a thread that spins keeps off the very thread it waits for.
"""

import os

SPINS = 30_000  # a tenth of libgomp's usual number: as fast on idle cores, several times as fast on busy ones


def spin_briefly() -> None:
    """Let threads sleep sooner, unless the user has said how they wait. Call it in a program, before torch is there."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
