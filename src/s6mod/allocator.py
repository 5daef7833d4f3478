"""A setting of the C allocator that training steps on a CPU gain from.

glibc gives blocks of more than a few hundred kilobytes back to the system as soon as they are freed, and every step
asks for the same blocks again, each time paying for fresh zeroed pages. Keeping them makes small steps markedly faster.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
KEEP_BELOW = 1 << 30


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks for reuse; False where the C library is not glibc. Call it in a program."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, KEEP_BELOW)) and bool(mallopt(M_TRIM_THRESHOLD, KEEP_BELOW))
