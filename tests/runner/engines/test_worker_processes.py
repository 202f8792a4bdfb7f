import multiprocessing
import os

import pytest

from xaibench.runner.engines import worker_processes
from xaibench.runner.engines.worker_processes import helper_process


class QuickContext(type(multiprocessing.get_context("fork"))):
    """Forks this process instead of a server, which would import torch first."""

    def get_start_method(self, allow_none=False):
        return "forkserver"


def test_a_helper_is_another_process_which_ends(monkeypatch):
    monkeypatch.setattr(worker_processes, "worker_context", QuickContext)
    monkeypatch.setattr(worker_processes, "available_cpus", lambda: 2)
    with helper_process() as helper:
        number = helper.submit(os.getpid).result()
        assert number != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_there_is_no_helper_where_it_would_not_help(monkeypatch):
    monkeypatch.setattr(worker_processes, "worker_context", QuickContext)
    monkeypatch.setattr(worker_processes, "available_cpus", lambda: 1)
    with helper_process() as helper:
        assert helper is None
    monkeypatch.setattr(worker_processes, "available_cpus", lambda: 2)
    monkeypatch.setattr(worker_processes, "worker_context", lambda: multiprocessing.get_context("spawn"))
    with helper_process() as helper:
        assert helper is None
