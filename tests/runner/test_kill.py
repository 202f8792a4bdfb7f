"""A real run is killed outright, twenty times, at random moments; in the end its tables are those of a quiet run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: What `xaibench run` does, less the report, which is written anew at every end.
COMMAND = "import sys; from xaibench.runner import run; run(sys.argv[1], sys.argv[2], engine=sys.argv[3], workers=2)"
KILLS = 20


def start(suite, folder, engine):
    arguments = [sys.executable, "-c", COMMAND, str(suite), str(folder), engine]
    return subprocess.Popen(arguments, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


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


def wait_for_progress(process, folder):
    """Until it has done something new: imports alone take seconds, and most kills would fall into them."""
    before, limit = len(results(folder)), time.monotonic() + 120
    while len(results(folder)) == before and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_killed_twenty_times_the_tables_are_equal_to_the_bit(tiny_suite, tiny_run, tmp_path):
    rng = random.Random(0)
    folder, kills, engines = tmp_path / "run 0", 0, ("processes", "serial", "processes")
    while kills < KILLS:
        process = start(tiny_suite, folder, engines[kills % 3])
        wait_for_progress(process, folder)
        time.sleep(rng.uniform(0, 0.1))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        elif process.returncode == 0:  # it got to its end in spite of the kills: look at it, and begin another
            assert same_tables(folder, tiny_run)
            folder = tmp_path / f"run {kills}"
        else:
            pytest.fail(f"the run ended with exit code {process.returncode}")
        process.wait()
        limit = time.monotonic() + 10
        while alive(process.pid) and time.monotonic() < limit:
            time.sleep(0.02)
        assert alive(process.pid) == [], "the workers end with the run that started them"
    assert start(tiny_suite, folder, "processes").wait() == 0
    assert same_tables(folder, tiny_run)
    assert list(tmp_path.rglob("*.corrupt-*")) == [], "no file was ever left half written"
