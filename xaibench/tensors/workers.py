"""Threads for CPU work while an accelerator computes, and the process from which worker processes are forked.

On the CPU, work for threads runs immediately in the calling thread. Results are the same, because each piece of work is
done by a single thread in either case. This module imports nothing large, so that the server of processes can start
before this process imports torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import context as contexts
from multiprocessing.context import BaseContext
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


#: Module whose imports the server does once for all workers.
_PRELOADED = "xaibench.runner.warm_imports"

#: Two threads that start processes at once must not take each other's substitute for the module.
_HIDING = threading.RLock()


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the module ``__main__`` while a process is started.

    A new process would import it once more: without ``if __name__ == "__main__":`` a user's script would start itself
    in each worker, and a script from standard input cannot be read again. No work is defined in ``__main__``.
    """
    with _HIDING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class _SpawnedProcess(contexts.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802
        with _hidden_main():
            return contexts.SpawnProcess._Popen(process_obj)


class _SpawnContext(contexts.SpawnContext):
    Process = _SpawnedProcess


if sys.platform != "win32":

    class _ForkServerProcess(contexts.ForkServerProcess):
        @staticmethod
        def _Popen(process_obj: Any) -> Any:  # noqa: N802
            with _hidden_main():
                return contexts.ForkServerProcess._Popen(process_obj)

    class _ForkServerContext(contexts.ForkServerContext):
        Process = _ForkServerProcess


def worker_context(preload: str = _PRELOADED) -> BaseContext:
    """Return the multiprocessing context that starts worker processes.

    The fork server imports torch once and forks a clean process for each worker. A plain fork of a process that already
    runs torch's threads can hang. On systems without a fork server, every worker is spawned. Workers do not import the
    user's script, so that it needs no ``if __name__ == "__main__":``.

    Args:
        preload: Module that the fork server imports once for all workers, unless it runs already.

    Returns:
        A context of :mod:`multiprocessing`.
    """
    if sys.platform == "win32" or "forkserver" not in multiprocessing.get_all_start_methods():
        return _SpawnContext()
    context = _ForkServerContext()
    context.set_forkserver_preload([preload])
    return context


def start_fork_server() -> None:
    """Start the fork server ahead of the workers, so that it imports what they need while this process makes the plan.

    Does nothing on systems without a fork server, or if it runs already.
    """
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
