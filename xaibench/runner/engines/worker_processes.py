"""Worker processes on this machine: each uses one thread, and exits when its parent process ends."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import threading
from multiprocessing.context import BaseContext

from xaibench.runner.engines.malloc import keep_freed_memory


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
    context.set_forkserver_preload(["xaibench.runner.engines.warm_imports"])
    return context


def start_fork_server() -> None:
    """Start the fork server ahead of the workers, so that it imports what they need while this process makes the plan.

    Does nothing on systems without a fork server, or if it runs already.
    """
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()


def become_worker() -> None:
    """Limit this process to one thread, and make it exit when its parent process ends, even if that is killed."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def end_workers(executor: concurrent.futures.ProcessPoolExecutor, *, at_once: bool) -> None:
    """Stop the worker processes of a pool.

    Args:
        executor: The process pool.
        at_once: Kill running jobs instead of waiting for them.
    """
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=not at_once, cancel_futures=True)
    if at_once:
        for process in processes:
            process.terminate()
