"""A real run is killed outright, twenty times, at random moments; in the end its tables are those of a quiet run."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from xaibench.runner import run

#: What `xaibench run` does, less the report, which is written anew at every end.
COMMAND = "import sys; from xaibench.runner import run; run(sys.argv[1], sys.argv[2], engine=sys.argv[3], workers=2)"
KILLS = 20


class Started:
    """A run in a session of its own: a new interpreter, or (much sooner at work) a fork of this one."""

    def __init__(self, suite, folder, engine):
        if engine == "processes" or threaded():
            arguments = [sys.executable, "-c", COMMAND, str(suite), str(folder), engine]
            self.pid = subprocess.Popen(arguments, start_new_session=True).pid
        else:
            self.pid = os.fork()
            if self.pid == 0:
                os.setsid()
                code = 1
                try:
                    run(suite, folder, engine="serial")
                    code = 0
                finally:
                    os._exit(code)
        self.code = None

    def ended(self, wait=False):
        if self.code is None:
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def threaded():
    """Whether other tests have left threads behind: a fork would inherit the locks they hold, and wait for ever."""
    return any(thread.name != "MainThread" and type(thread).__name__ != "TMonitor" for thread in threading.enumerate())


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
    names = ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "examples.safetensors")
    return [name for name in names if (folder / name).read_bytes() != (other / name).read_bytes()] == []


def wait_for_progress(started, folder):
    """Until it has done something new: imports alone take seconds, and most kills would fall into them."""
    before, limit = len(results(folder)), time.monotonic() + 120
    while len(results(folder)) == before and not started.ended() and time.monotonic() < limit:
        time.sleep(0.005)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_killed_twenty_times_the_tables_are_equal_to_the_bit(tiny_suite, tiny_run, tmp_path):
    rng = random.Random(0)
    folder, kills = tmp_path / "run 0", 0
    while kills < KILLS:
        started = Started(tiny_suite, folder, "processes" if kills % 4 == 0 else "serial")
        wait_for_progress(started, folder)
        time.sleep(rng.uniform(0, 0.3))
        if not started.ended():
            started.kill()
            kills += 1
        elif started.code == 0:  # it got to its end in spite of the kills: look at it, and begin another
            assert same_tables(folder, tiny_run)
            folder = tmp_path / f"run {kills}"
        else:
            pytest.fail(f"the run ended with exit code {started.code}")
        started.ended(wait=True)
        limit = time.monotonic() + 10
        while alive(started.pid) and time.monotonic() < limit:
            time.sleep(0.02)
        assert alive(started.pid) == [], "the workers end with the run that started them"
    last = Started(tiny_suite, folder, "processes")
    last.ended(wait=True)
    assert last.code == 0
    assert same_tables(folder, tiny_run)
    assert list(tmp_path.rglob("*.corrupt-*")) == [], "no file was ever left half written"
