"""Memory allocator settings of worker processes."""

from __future__ import annotations

import ctypes
import functools

#: Parameters of glibc's ``mallopt``, from ``malloc.h``.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: Number of free bytes at the top of the heap that a worker keeps; it returns more to the system.
KEPT = 2**30


@functools.cache
def keep_freed_memory() -> bool:
    """Make this process reuse freed memory instead of returning it to the system.

    By default, glibc maps new pages for every tensor larger than 32 MB and unmaps them when it is freed. The page
    faults take nearly half of the time of a training step of a CNN on 64×64 pixels. Results do not change.

    Returns:
        True if the settings were applied, which needs glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
