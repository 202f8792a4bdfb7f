"""The process from which worker processes are forked.

This module imports nothing large, so that the server can start before this process imports torch.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import types
from collections.abc import Iterator
from multiprocessing import context as contexts
from multiprocessing.context import BaseContext
from typing import Any

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
