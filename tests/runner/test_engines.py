"""Worker processes: they are restarted after a crash, and share the devices and the store."""

import multiprocessing
import os
import random
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing import Pipe, forkserver, spawn
from typing import ClassVar

import pytest
from fresh_process import run_fresh
from killed_runs import start_worker
from refusals import refused

from xaibench.registry.parameters import Frozen
from xaibench.runner import engines
from xaibench.runner.engines import MAX_TRIES, Processes, Schedule, helper_process
from xaibench.runner.plan.jobs import DataJob, Job, Outcome
from xaibench.runner.store import Store, StoreError
from xaibench.tensors.workers import _SpawnContext, start_fork_server, worker_context


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
    refused(EOFError, "", connection.recv)


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
    refused(StoreError, "memory://x", lambda: Processes(Store("memory://x"), "cpu", workers=1))


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
    refused(ProcessLookupError, "", os.kill, number, 0)


@pytest.mark.parametrize(("context", "cpus"), [("fork", 1), ("spawn", 2)])
def test_there_is_no_helper_where_it_would_not_help(monkeypatch, context, cpus):
    monkeypatch.setattr(engines, "worker_context", lambda: multiprocessing.get_context(context))
    monkeypatch.setattr(engines, "available_cpus", lambda: cpus)
    with helper_process() as helper:
        assert helper is None


@dataclass(frozen=True)
class Pretend(Job):
    name: str
    after: tuple[Job, ...] = ()
    stage: ClassVar[str] = "data"
    disk_mb, memory_mb = 0.0, 0.0

    @property
    def needs(self):
        return self.after

    def about(self):
        return {}

    def __str__(self) -> str:
        return self.name


class Later(Pretend):
    stage: ClassVar[str] = "score"


def failures(jobs, store, engine, seen=lambda job: None):
    schedule = Schedule(jobs, store, seen)
    schedule.run(engine)
    return schedule.failures


class PretendEngine:
    """Finishes jobs in a random order; ``behavior`` maps a name to the outcomes of its tries."""

    def __init__(self, store, behavior=None, capacity=3, seed=0):
        self.store, self.capacity = store, capacity
        self.behavior = {name: list(outcomes) for name, outcomes in (behavior or {}).items()}
        self.running, self.order, self.random = [], [], random.Random(seed)

    def has_room(self, job):
        return len(self.running) < self.capacity

    def submit(self, job):
        assert self.has_room(job)
        self.running.append(job)

    def wait(self):
        job = self.running.pop(self.random.randrange(len(self.running)))
        self.order.append(job.name)
        script = self.behavior.get(job.name)
        act = script.pop(0) if script else "well"
        if callable(act):
            act = act(job)
        if act == "well":
            for need in job.needs:
                assert self.store.has(need.stage, need.key), f"{job} ran before {need}"
            self.store._write(self.store.name(job.stage, job.key), job.name.encode())
            return [Outcome(job)]
        return [Outcome(job, f"it {act}", fatal=act == "filled the disk", died=act == "died")]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def diamond():
    a = Pretend("a")
    b, c = Pretend("b", (a,)), Pretend("c", (a,))
    d = Later("d", (b, c))
    return a, b, c, d


@pytest.mark.parametrize("seed", range(5))
def test_every_job_runs_once_after_those_it_needs(store, seed):
    jobs = []
    for i in range(40):
        jobs.append(Pretend(str(i), tuple(random.Random(seed * 100 + i).sample(jobs, min(len(jobs), i % 4)))))
    engine, seen = PretendEngine(store, seed=seed), []
    assert failures(jobs, store, engine, seen.append) == {}
    assert sorted(engine.order) == sorted(job.name for job in jobs)
    assert sorted(seen, key=lambda job: job.name) == sorted(jobs, key=lambda job: job.name)


def test_what_is_there_is_not_run_again(store):
    jobs = diamond()
    failures(jobs, store, PretendEngine(store))
    engine, seen = PretendEngine(store), []
    failures(jobs, store, engine, seen.append)
    assert engine.order == []
    assert set(seen) == set(jobs), "but it is counted as done"


def test_a_failure_stops_only_what_needs_it(store):
    _, b, _, d = jobs = diamond()
    engine = PretendEngine(store, {"b": ["broke"]})
    failed = failures(jobs, store, engine)
    assert sorted(engine.order) == ["a", "b", "c"]
    assert failed == {b: "it broke (1 jobs that need it were not run)"}
    assert failures(jobs, store, engine) == {}, "the next run tries it again"
    assert store.has(d.stage, d.key)


def test_a_killed_worker_gets_its_jobs_tried_again_but_not_for_ever(store):
    jobs = diamond()
    assert failures(jobs, store, PretendEngine(store, {"b": ["died", "died"]})) == {}
    other = Pretend("always dies")
    engine = PretendEngine(store, {"always dies": ["died"] * 10})
    failed = failures([other], store, engine)
    assert list(failed) == [other]
    assert engine.order == ["always dies"] * MAX_TRIES


def test_an_input_that_turns_out_damaged_is_made_again(store):
    a, b, _, d = jobs = diamond()

    def lose(*lost):
        def act(job):
            for one in lost:
                store.files.remove(store.name(one.stage, one.key))
            return "found its input damaged"

        return act

    engine = PretendEngine(store, {"d": [lose(b)]})
    assert failures(jobs, store, engine) == {}
    assert engine.order.count("b") == 2
    assert engine.order[-1] == "d"

    # An indirect dependency: d reads the result that b needed, and both are missing.
    store.files.remove(store.name(d.stage, d.key))
    engine = PretendEngine(store, {"d": [lose(a, b)]})
    assert failures(jobs, store, engine) == {}
    assert engine.order == ["d", "a", "b", "d"]


def test_a_full_disk_ends_the_run(store):
    jobs = diamond()
    with pytest.raises(StoreError, match="it filled the disk"):
        failures(jobs, store, PretendEngine(store, {"c": ["filled the disk"]}))


def test_later_stages_do_not_keep_earlier_ones_waiting(store):
    firsts = [Pretend(f"first {i}") for i in range(6)]
    lasts = [Later(f"last {i}", (first,)) for i, first in enumerate(firsts)]
    engine = PretendEngine(store, capacity=1)
    failures([*firsts, *lasts], store, engine)
    assert engine.order == [job.name for job in (*firsts, *lasts)]


@dataclass(frozen=True)
class Patient(Later):
    before: tuple[Job, ...] = ()

    @property
    def waits_for(self):
        return self.before


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("outcomes", [[], ["it broke"]])
def test_a_job_waits_for_another_and_does_without_it(store, outcomes, seed):
    first = Later("first")
    second = Patient("second", before=(first,))
    third = Patient("third", after=(Pretend("data"),), before=(second,))
    engine = PretendEngine(store, {"first": outcomes}, seed=seed)
    failed = failures([Pretend("data"), first, second, third], store, engine)
    assert sorted(map(str, failed)) == ["first"] * len(outcomes)
    order = [name for name in engine.order if name != "data"]
    assert order == ["first", "second", "third"]
    # A second pass waits neither for stored results nor for jobs that are not part of it.
    again = PretendEngine(store)
    assert failures([Pretend("data"), second, third], store, again) == {}
    assert again.order == []


def test_a_job_that_waits_for_one_that_is_skipped_is_run(store):
    lost = Later("lost", after=(Pretend("broken"),))
    second = Patient("second", before=(lost,))
    engine = PretendEngine(store, {"broken": ["it broke"]})
    failures([Pretend("broken"), lost, second], store, engine)
    assert engine.order == ["broken", "second"]
