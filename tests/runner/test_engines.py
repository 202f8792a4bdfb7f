"""Worker processes: they are restarted after a crash, and share the devices and the store."""

import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import Pipe, forkserver, spawn

import pytest
from fresh_process import run_fresh
from killed_runs import start_worker

from xaibench.component.parameters import Frozen
from xaibench.runner import engines
from xaibench.runner.engines import Processes, helper_process
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.scheduling import MAX_TRIES
from xaibench.runner.store import Store, StoreError
from xaibench.tensors.fork_server import _SpawnContext, start_fork_server, worker_context


def _job(seed):
    return DataJob("xai-tris/lin-white-8x8", seed, Frozen({"n_samples": 100}), "1")


def _outcome(engine, job):
    engine.submit(job)
    (outcome,) = engine.wait()
    return outcome


def test_a_fork_server_that_died_is_started_anew(tmp_path):
    store = Store(tmp_path)
    with Processes(store, "cpu", workers=1) as engine:
        assert not _outcome(engine, _job(0)).error
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        # The scheduler retries a job whose process died. When the workers notice it depends on the system.
        outcomes = [_outcome(engine, _job(1))]
        while outcomes[-1].died and len(outcomes) < MAX_TRIES:
            outcomes.append(_outcome(engine, _job(1)))
    assert not outcomes[-1].error
    assert store.has("data", _job(1).key)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="states of processes are unknown")
def test_a_stopped_worker_is_reported_and_the_run_continues_with_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(engines, "_PATIENCE", 0.05)
    with Processes(Store(tmp_path), "cpu", workers=1) as engine:
        assert not _outcome(engine, _job(0)).error
        (pid,) = engine._pools[False].executor._processes
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()
        assert not _outcome(engine, _job(1)).error
    assert f"kill -CONT {pid}" in caplog.text


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script of a user, without ``if __name__ == "__main__":``, that is running."""
    (tmp_path / "script.py").write_text("open(__file__ + '.ran', 'w')")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "script.py"), raising=False)
    return tmp_path / "script.py"


def test_a_process_does_not_run_the_script_of_the_user_once_more(script):
    main = sys.modules["__main__"]
    process = _SpawnContext().Process(target=os.mkdir, args=(script.parent / "worked",))
    process.start()
    process.join()
    assert sorted(path.name for path in script.parent.iterdir()) == ["script.py", "worked"]
    assert sys.modules["__main__"] is main


def test_a_worker_is_not_told_which_script_to_import(script, monkeypatch):
    told = []
    monkeypatch.setattr(
        multiprocessing.context.ForkServerProcess, "_Popen", lambda _: told.append(spawn.get_preparation_data("worker"))
    )
    assert "init_main_from_path" in spawn.get_preparation_data("worker"), "that is how a process learns it"
    worker_context().Process._Popen(None)  # what starting it calls
    (data,) = told
    assert [name for name in data if "main" in name] == []


def test_a_worker_ends_with_the_process_that_started_it():
    connection, other_end = Pipe()
    process = worker_context().Process(target=start_worker, args=(other_end,))
    process.start()
    other_end.close()
    assert connection.recv() == "at work"
    process.kill()
    assert connection.poll(30)
    with pytest.raises(EOFError):
        connection.recv()


def test_the_fork_server_is_started_ahead_of_the_workers(monkeypatch):
    server = forkserver.ForkServer()
    monkeypatch.setattr(forkserver, "ensure_running", server.ensure_running)
    monkeypatch.setattr(forkserver, "set_forkserver_preload", server.set_forkserver_preload)
    start_fork_server()
    os.kill(server._forkserver_pid, signal.SIGKILL)  # before it has imported anything
    server._stop()
    assert server._preload_modules == ["xaibench.runner.warm_imports"]


def test_workers_get_variables_that_were_set_after_the_fork_server_started(tmp_path, monkeypatch):
    # `xaibench run --root` sets XAIBENCH_DATA then.
    start_fork_server()
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path / "elsewhere"))
    with Processes(Store(tmp_path), "cpu", workers=1) as engine:
        outcome = _outcome(engine, DataJob("pet", 0, Frozen({"root": "$XAIBENCH_DATA"}), "1"))
    assert f"pet is not in {tmp_path / 'elsewhere'}" in outcome.error


def test_a_refused_connection_is_tried_again(tmp_path, monkeypatch):
    with Processes(Store(tmp_path), "cpu", workers=1) as engine:
        pool, refused = engine._pools[False], []

        def refuse(*_):
            refused.append(True)
            raise ConnectionRefusedError(111, "Connection refused")

        monkeypatch.setattr(pool.executor, "submit", refuse)
        assert not _outcome(engine, _job(0)).error
    assert refused == [True]


@pytest.mark.parametrize(
    ("gpus", "cpus", "memory", "each"),
    [(1, 16, 139, 4), (8, 16, 139, 1), (1, 2, 139, 1), (2, 64, 40, 2), (1, 9, 8, 1)],
)
def test_processes_share_a_gpu_as_memory_and_processors_allow(gpus, cpus, memory, each, monkeypatch):
    monkeypatch.setattr(engines, "available_cpus", lambda: cpus)
    monkeypatch.setattr(engines, "memory_of", lambda device: memory)
    assert engines.default_device_workers([f"cuda:{i}" for i in range(gpus)]) == gpus * each


def test_a_store_in_memory_is_refused(tmp_path):
    with pytest.raises(StoreError, match="memory://x"):
        Processes(Store("memory://x"), "cpu", workers=1)


FREED = """
import resource, sys
import numpy as np
from xaibench.runner.engines import keep_freed_memory

if sys.argv[1] == "kept" and not keep_freed_memory():
    print("no glibc")
    raise SystemExit
faults = []
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(5 * 2**20)  # 40 MiB, of 10,240 pages
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults))
"""


def test_memory_that_was_freed_is_used_again():
    faults = run_fresh(FREED, "kept").stdout.strip()
    if faults == "no glibc":
        pytest.skip("only glibc can be told to keep memory")
    assert int(faults) < 100


class QuickContext(type(multiprocessing.get_context("fork"))):
    """Forks this process instead of a server, which would import torch first."""

    def get_start_method(self, allow_none=False):
        return "forkserver"


def test_a_helper_is_another_process_which_ends(monkeypatch):
    monkeypatch.setattr(engines, "worker_context", QuickContext)
    monkeypatch.setattr(engines, "available_cpus", lambda: 2)
    with helper_process() as helper:
        number = helper.submit(os.getpid).result()
        assert number != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.parametrize(("context", "cpus"), [("fork", 1), ("spawn", 2)])
def test_there_is_no_helper_where_it_would_not_help(monkeypatch, context, cpus):
    monkeypatch.setattr(engines, "worker_context", lambda: multiprocessing.get_context(context))
    monkeypatch.setattr(engines, "available_cpus", lambda: cpus)
    with helper_process() as helper:
        assert helper is None
