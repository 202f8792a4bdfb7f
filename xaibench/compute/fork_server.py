"""The process from which worker processes are forked.

This module imports nothing large, so that the server can start before this process imports torch.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import BaseContext

#: Module whose imports the server does once for all workers.
_PRELOADED = "xaibench.runner.engines.warm_imports"


def worker_context() -> BaseContext:
    """Return the multiprocessing context that starts worker processes.

    The fork server imports torch once and forks a clean process for each worker. A plain fork of a process that already
    runs torch's threads can hang. On systems without a fork server, every worker is spawned.

    Returns:
        A context of :mod:`multiprocessing`.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def start_fork_server() -> None:
    """Start the fork server ahead of the workers, so that it imports what they need while this process makes the plan.

    Does nothing on systems without a fork server, or if it runs already.
    """
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
