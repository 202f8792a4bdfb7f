"""With a device of their own, explain jobs and score jobs run side by side, each kind in its own processes."""

import sys

import pandas as pd
import pytest

from xaibench.runner.costs.simulation import simulate
from xaibench.runner.engines.local_engines import Processes
from xaibench.runner.engines.scheduling import Schedule
from xaibench.runner.plan.planning import make_plan
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.suite_parsing import parse_suite

#: A slow "device" and a metric, which write down when they work, and where.
PARTS = """
import os, time
from pathlib import Path

def note(kind, start):
    line = f"{kind} {os.getpid()} {start} {time.time()}\\n"
    with Path(__file__).with_name("log.txt").open("a") as file:
        file.write(line)

def slow(model, images, targets, step=0):
    start = time.time()
    time.sleep(0.5)
    note("explain", start)
    return images[:, 0]

def score(maps, masks, reduction="none"):
    start = time.time()
    time.sleep(0.15)
    note("score", start)
    return maps.sum((1, 2))
"""

TABLES = {
    "name": "s",
    "title": "S",
    "data": {"parameters": {"n_samples": 100}},
    "training": {"epochs": 1},
    "explaining": {"samples": 2},
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
    "explainers": {f"slow-{i}": {"use": "overlap_test_parts:slow", "step": i} for i in range(6)},
    "metrics": {"overlap_test_parts:score": {}},
}


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "overlap_test_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    sys.modules.pop("overlap_test_parts", None)


def test_maps_are_scored_while_others_are_made(parts):
    plan, store = make_plan(parse_suite(TABLES)), Store(parts / "store")
    with Processes(store, "cpu", workers=1, device_workers=1) as engine:
        assert Schedule(plan.jobs, store).run(engine) == {}
    columns = ["kind", "pid", "start", "end"]
    log = pd.read_csv(parts / "log.txt", sep=" ", names=columns)
    explain, score = log[log["kind"] == "explain"], log[log["kind"] == "score"]
    assert len(explain) == len(score) == 6
    assert explain["pid"].nunique() == score["pid"].nunique() == 1
    assert set(explain["pid"]).isdisjoint(score["pid"]), "the device's process only explains"
    before_the_last = score["end"] < explain["end"].max()
    assert before_the_last.sum() >= 4, "scores are not kept for the end"
    idle = explain["start"].sort_values().to_numpy()[1:] - explain["end"].sort_values().to_numpy()[:-1]
    assert idle.max() < 0.4, "and the device does not wait for them"


def test_the_simulated_clock_overlaps_likewise():
    jobs = make_plan(parse_suite(TABLES | {"metrics": {"emd_perf": {}}})).jobs
    seconds = {job: {"explain": 2.0, "score": 1.0}.get(job.stage, 0.0) for job in jobs}
    assert simulate(jobs, seconds, workers=1) == 18
    assert simulate(jobs, seconds, workers=1, device_workers=1) == 13, "twelve of explaining, and the last score"
    assert simulate(jobs, seconds, workers=6) == 3
    assert simulate(jobs, seconds, workers=6, dispatch=10.0) > 100
    done = {job for job in jobs if job.stage != "score"}
    assert simulate(jobs, seconds, workers=2, done=done) == 3
