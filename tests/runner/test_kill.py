"""A real run is killed at random moments; in the end its tables are those of an undisturbed run."""

import contextlib
import os
import random
import signal
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from killed_runs import launch

from xaibench.tensors.workers import worker_context

#: The kills that hit worker processes. Few, because the fork server imports torch again in each.
OF_PROCESSES = {4, 10}


@pytest.fixture(scope="module")
def launcher(tiny_suite, tmp_path_factory):
    """A connection to a process that starts runs, forked from the server of the worker processes of other tests."""
    connection, other_end = Pipe()
    process = worker_context().Process(target=launch, args=(tiny_suite, tmp_path_factory.mktemp("cache"), other_end))
    process.start()
    other_end.close()
    yield connection
    process.kill()
    process.join()


class Started:
    """A run in a session of its own."""

    def __init__(self, launcher, folder, engine):
        self.connection = launcher
        launcher.send((folder, engine))
        self.pid = launcher.recv()
        self.code = None

    def ended(self, wait=False):
        if self.code is None and (wait or self.connection.poll()):
            self.code = self.connection.recv()
        return self.code is not None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(self.pid, signal.SIGKILL)
        self.ended(wait=True)


def results(folder):
    return [path for path in (folder / "store").rglob("*") if path.is_file()]


def alive(session):
    """Processes of a session that still run, from /proc (zombies left out)."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry))
    return found


def same_tables(folder, other):
    names = ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "samples.safetensors")
    return [name for name in names if (folder / name).read_bytes() != (other / name).read_bytes()] == []


def wait_for_progress(started, folder, count):
    """Until it has left so many more results: a kill by the clock would fall where the machine's load puts it."""
    enough, limit = len(results(folder)) + count, time.monotonic() + 120
    while len(results(folder)) < enough and not started.ended() and time.monotonic() < limit:
        time.sleep(0.005)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process that has used CUDA cannot be forked")
@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_the_tables_of_a_killed_run_are_bit_identical(launcher, tiny_run, tmp_path, times):
    rng = random.Random(0)
    folder, kills = tmp_path / "run 0", 0
    while kills < times:
        started = Started(launcher, folder, "processes" if kills in OF_PROCESSES else "serial")
        wait_for_progress(started, folder, rng.randint(1, 5))
        time.sleep(rng.uniform(0, 0.1))
        started.kill()
        if started.code == -signal.SIGKILL:
            kills += 1
        elif started.code == 0:  # it got to its end in spite of the kills: look at it, and begin another
            assert same_tables(folder, tiny_run)
            folder = tmp_path / f"run {kills}"
        else:
            pytest.fail(f"the run ended with exit code {started.code}")
        limit = time.monotonic() + 60
        while alive(started.pid) and time.monotonic() < limit:
            time.sleep(0.02)
        assert alive(started.pid) == [], "the workers end with the run that started them"
    last = Started(launcher, folder, "serial")
    last.ended(wait=True)
    assert last.code == 0
    assert same_tables(folder, tiny_run)
    assert list(tmp_path.rglob("*.corrupt-*")) == [], "no file was ever left half written"
