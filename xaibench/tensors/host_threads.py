"""CPU work that runs in threads while an accelerator computes.

On the CPU, every piece of work runs immediately in the calling thread. Results are the same, because each piece of work
is done by a single thread in either case.
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

#: More threads than this slow each other down.
_MAX_THREADS = 16


class Submit(Protocol):
    """Submits a call; the returned function waits for the result and re-raises the call's exception."""

    def __call__(self, work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
        """Submit ``work(*given)`` and return a function that waits for its result."""


def available_cpus() -> int:
    """Return the number of CPUs that this process may use; fewer than the machine has in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with torch on one thread inside the block."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def background_threads(device: torch.device) -> Iterator[Submit]:
    """Provide ``submit``, which runs calls in threads while ``device`` computes; on the CPU it runs them at once.

    Calls start in the order of submission. Calls that have not started when the block ends are canceled.

    Args:
        device: Where the rest is computed.

    Example:
        >>> import torch
        >>> with background_threads(torch.device("cpu")) as submit:
        ...     squares = [submit(pow, number, 2) for number in range(4)]
        ...     [square() for square in squares]
        [0, 1, 4, 9]
    """
    if device.type == "cpu":
        yield _run_immediately
        return
    threads = ThreadPoolExecutor(min(_MAX_THREADS, available_cpus()))

    def submit(work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
        return threads.submit(work, *given).result

    try:
        yield submit
    finally:
        threads.shutdown(cancel_futures=True)


def _run_immediately(work: Callable[..., _T], /, *given: Any) -> Callable[[], _T]:
    result = work(*given)
    return lambda: result
