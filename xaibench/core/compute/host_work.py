"""What the host computes for a device: in threads beside it, so that the device goes on meanwhile.

On the CPU there is nothing to go on: everything is done at once and in its turn, by the one thread that a job has. What
comes out is the same, because each piece of work is done by a single thread either way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")

#: More threads than this wait for one another.
_MOST = 16


class Submit(Protocol):
    """Hands over a call; what it returns waits for the result, and raises what the call raised."""

    def __call__(self, work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
        """Have ``work(*given)`` computed; the result is had by calling what is returned."""


def available_cpus() -> int:
    """CPUs that this process may use, which is fewer than the machine has inside a container or a job of a cluster."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def beside(device: torch.device) -> Iterator[Submit]:
    """Inside the block, calls that are handed over run in threads beside the device; on the CPU, each at once.

    They begin in the order in which they were handed over. What has not begun when the block is left never will.

    Args:
        device: Where the rest is computed.

    Example:
        >>> import torch
        >>> with beside(torch.device("cpu")) as submit:
        ...     squares = [submit(pow, number, 2) for number in range(4)]
        ...     [square() for square in squares]
        [0, 1, 4, 9]
    """
    if device.type == "cpu":
        yield _at_once
        return
    threads = ThreadPoolExecutor(min(_MOST, available_cpus()))

    def submit(work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
        return threads.submit(work, *given).result

    try:
        yield submit
    finally:
        threads.shutdown(cancel_futures=True)


def _at_once(work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
    found = work(*given)
    return lambda: found
