"""Processes that tests kill. A process of its own begins in a module that it can import."""

import multiprocessing
import os
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from xaibench.runner import run
from xaibench.runner.engines import become_worker


def launch(suite: Path, cache: Path, connection: Connection) -> None:
    """For each (folder, engine) received, run the suite in a fork, in its own session; send its pid and its exit code.

    A run comes before the first fork. It takes ten times as long as what is left of the others.
    """
    os.environ["XAIBENCH_CACHE"] = str(cache)
    torch.set_num_threads(1)  # threads do not come along into a fork
    with tempfile.TemporaryDirectory() as folder:
        run(suite, folder, engine="serial")
    while True:
        folder, engine = connection.recv()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            code = 1
            try:
                run(suite, folder, engine=engine, workers=2)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        connection.send(pid)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def start_worker(connection: Connection) -> None:
    """Start a worker process, which closes the connection when it ends; both processes are busy for a minute."""
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(connection,))
    worker.start()
    connection.close()
    time.sleep(60)


def _work(connection: Connection) -> None:
    become_worker()
    connection.send("at work")
    time.sleep(60)
