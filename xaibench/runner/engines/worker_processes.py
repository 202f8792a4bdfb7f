"""Worker processes on this machine: each uses one thread, and exits when its parent process ends."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator

from xaibench.compute.fork_server import worker_context
from xaibench.compute.host_threads import available_cpus
from xaibench.runner.engines.malloc import keep_freed_memory

_SECONDS_TO_END = 5


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
        for process in processes:  # so that none still writes to folders that the caller deletes
            process.join(_SECONDS_TO_END)


@contextlib.contextmanager
def helper_process() -> Iterator[concurrent.futures.Executor | None]:
    """Provide one worker process to work next to this one, after :func:`.start_fork_server`.

    Returns:
        A context manager that gives its executor. None on systems without a fork server, where a process would import
        torch first, and with a single CPU.
    """
    context = worker_context()
    if context.get_start_method() != "forkserver" or available_cpus() < 2:
        yield None
        return
    executor = concurrent.futures.ProcessPoolExecutor(1, context, become_worker)
    try:
        yield executor
    finally:
        end_workers(executor, at_once=False)
