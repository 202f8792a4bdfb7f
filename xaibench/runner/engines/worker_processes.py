"""Worker processes of this machine: each keeps to one thread, and none outlives who started it."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import threading
from multiprocessing.context import BaseContext

from xaibench.runner.engines.freed_memory import keep_freed_memory


def worker_context() -> BaseContext:
    """How worker processes are started.

    The fork server imports torch once and forks a clean process for each worker; a plain fork of a process that already
    runs torch's threads can hang. Where there is none, each is started anew.

    Returns:
        A context of :mod:`multiprocessing`.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["xaibench.runner.engines.warm_imports"])
    return context


def become_worker() -> None:
    """Keep this process to one thread, and end it with the one that started it, even when that is killed outright."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def end_workers(executor: concurrent.futures.ProcessPoolExecutor, *, at_once: bool) -> None:
    """Stop worker processes.

    Args:
        executor: Theirs.
        at_once: Whether what they are at is broken off; else it is waited for.
    """
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=not at_once, cancel_futures=True)
    if at_once:
        for process in processes:
            process.terminate()
