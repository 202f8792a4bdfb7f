"""How a worker process allocates memory."""

from __future__ import annotations

import ctypes
import functools

#: Parameters of glibc's ``mallopt``, from its ``malloc.h``.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: Free bytes at the top of the heap, of which a worker gives back those beyond.
KEPT = 2**30


@functools.cache
def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees, for what it allocates next.

    By default glibc maps every tensor beyond 32 MB anew and gives it back when it is freed. Each of its pages then
    costs a fault: nearly half the time of a training step of a CNN on 64×64 pixels. Results do not change.

    Returns:
        Whether it was done: only where the C library is glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
