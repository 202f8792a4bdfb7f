"""With a device of their own, explain jobs and score jobs run side by side, each kind in its own processes."""

import sys

import pandas as pd
import pytest
from small_suites import SMALL

from xaibench.runner.engines import Processes, Schedule
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import parse_suite

#: A "device" and a metric that wait for each other, by what they write down: the third map is not made before the first
#: is scored, and so on; the first is not scored before the second is being made. Who waits in vain raises an error.
PARTS = """
import os, time
from pathlib import Path

LOG = Path(__file__).with_name("log.txt")

def note(line):
    with LOG.open("a") as file:
        file.write(f"{line} {os.getpid()}\\n")

def count(line):
    return sum(written.startswith(line) for written in LOG.read_text().splitlines()) if LOG.exists() else 0

def wait_for(line, number):
    limit = time.monotonic() + 60
    while count(line) < number:
        if time.monotonic() > limit:
            raise TimeoutError(f"{line}: {count(line)} in a minute, expected {number}")
        time.sleep(0.01)

def slow(model, images, targets, step=0):
    note("explain")
    wait_for("scored", count("explain ") - 2)
    note("explained")
    return images[:, 0]

def score(maps, masks, reduction="none"):
    wait_for("explain ", min(count("scored") + 2, 6))
    note("scored")
    return maps.sum((1, 2))
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "overlap_test_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    sys.modules.pop("overlap_test_parts", None)


def test_maps_are_scored_while_others_are_made(parts):
    explainers = {f"slow-{i}": {"use": "overlap_test_parts:slow", "step": i} for i in range(6)}
    tables = SMALL | {"explainers": explainers, "metrics": {"overlap_test_parts:score": {}}}
    plan, store = make_plan(parse_suite(tables)), Store(parts / "store")
    with Processes(store, "cpu", workers=1, device_workers=1) as engine:
        schedule = Schedule(plan.jobs, store)
        schedule.run(engine)
    assert schedule.failures == {}
    log = pd.read_csv(parts / "log.txt", sep=" ", names=["kind", "pid"])
    assert log["kind"].value_counts().to_dict() == {"explain": 6, "explained": 6, "scored": 6}
    makers, scorers = log.loc[log["kind"] != "scored", "pid"], log.loc[log["kind"] == "scored", "pid"]
    assert makers.nunique() == scorers.nunique() == 1
    assert set(makers).isdisjoint(scorers), "the device's process only explains"
