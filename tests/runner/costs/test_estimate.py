"""Cost estimates: jobs are counted exactly, durations are measured on small jobs or taken from earlier runs."""

import json
from dataclasses import replace

import pytest

from xaibench.runfolder.tables import JOBS
from xaibench.runner import load_suite, run
from xaibench.runner.costs import calibration as module
from xaibench.runner.costs import time_limit as time_limit_module
from xaibench.runner.costs.calibration import Cost, known_costs, learn, remember
from xaibench.runner.costs.estimate import START, estimate
from xaibench.runner.plan.job_base import Outcome
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.store.store_files import write_atomic
from xaibench.runner.suites.parsing import parse_suite


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "fresh"))
    monkeypatch.setattr(module, "_SECONDS", 600.0)  # a busy machine that compiles takes longer than the default
    return tmp_path / "fresh" / "costs-2.json"


def test_an_estimate_is_within_a_factor_of_the_truth(tiny_suite, fresh_cache, tmp_path):
    said = []
    found = estimate(tiny_suite, tmp_path / "new", workers=1, device="cpu", say=said.append)
    assert "kinds of jobs" in said[0]
    assert found.unmeasured == 0
    assert list(found.stages["jobs"]) == [2, 6, 14, 28]
    # Loose bounds, because the processor time of such short jobs is measured inaccurately.
    run(tiny_suite, tmp_path / "truth", engine="serial", device="cpu")
    truth = JOBS.read(tmp_path / "truth")["cpu_seconds"].sum()
    assert 0.3 < found.stages["work_seconds"].sum() / truth < 3
    fresh_cache.unlink()
    found = estimate(tiny_suite, tmp_path / "new", workers=1, device="cpu")
    assert found.seconds == pytest.approx(found.stages["work_seconds"].sum() + START)
    # Measured costs are cached, so nothing is measured the second time.
    said.clear()
    again = estimate(tiny_suite, tmp_path / "new", workers=2, device="cpu", say=said.append)
    assert said == []
    assert (found.seconds - START) / 2 <= again.seconds - START < found.seconds - START
    assert json.loads(fresh_cache.read_text())


def test_what_the_first_job_compiles_is_no_work(tiny_suite, fresh_cache, monkeypatch):
    """In a fresh checkout the first training compiles for seconds, which must not be counted as work."""
    really, seen = module.run_job, set()

    def cold(job, store, device):
        outcome = really(job, store, device)
        first = job.kind(device) not in seen
        seen.add(job.kind(device))
        return replace(outcome, cpu_seconds=outcome.cpu_seconds + 5.0 * (first and job.stage == "train"))

    monkeypatch.setattr(module, "run_job", cold)
    plan = make_plan(load_suite(tiny_suite)[0])
    costs = module.calibrate(plan)
    assert all(costs[job.kind()].of(job) < 2 for job in plan.jobs if job.stage == "train")


@pytest.fixture
def budgets():
    """A plan with explainers of many passes."""
    budgets = {f"{use}-{n}": {"use": use, "budget": n} for use in ("rise", "smoothgrad") for n in (400, 600, 10_000)}
    budgets["occlusion-10000"] = {"use": "occlusion", "budget": 10_000}  # at most one per pixel
    tables = {
        "name": "s",
        "title": "S",
        "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
        "training": {"epochs": 1},
        "explainers": {"saliency": {}, "uniform": {}} | budgets,
        "metrics": {"iou": {}, "deletion": {}},
    }
    return make_plan(parse_suite(tables))


def stop_after(monkeypatch, enough):
    """Let the time be up as soon as ``enough(jobs that ran)``; a sample costs a millisecond per pass."""
    really, ran = module.run_job, []

    def limited(job, store, device):
        if enough(ran):
            raise time_limit_module._TimeIsUp
        ran.append(job)
        passes = job.declared_passes if job.stage == "explain" else 1
        return replace(really(job, store, device), cpu_seconds=1e-3 * job.amount * passes)

    monkeypatch.setattr(module, "run_job", limited)
    return ran


def test_kinds_that_are_not_reached_are_estimated_from_those_that_are(fresh_cache, monkeypatch, budgets):
    """Measuring each of 45 budgets of a network for photographs would take a quarter of an hour."""
    ran = stop_after(monkeypatch, lambda ran: {job.stage for job in ran} >= {"data", "train", "explain", "score"})
    said = []
    costs = module.calibrate(budgets, say=said.append)
    assert "for at most 600 s" in said[0]
    explained = {job.explainer.use for job in ran if job.stage == "explain"}
    assert explained <= {"saliency", "uniform"}, "the cheapest explainers are measured first"
    jobs = [job for job in budgets.jobs if job.passes]
    assert len({job.kind() for job in jobs}) == 7
    assert {job.passes for job in jobs if job.explainer.use == "occlusion"} == {65}
    for job in jobs:
        assert costs[job.kind()].measured == "rough"
        assert costs[job.kind()].of(job) == pytest.approx(1e-3 * job.amount * job.passes, rel=0.01)
    assert known_costs().keys() < costs.keys()
    assert all(cost.measured == "small job" for cost in known_costs().values()), "rough costs are not kept"


def test_the_next_plan_measures_what_the_first_did_not_reach(fresh_cache, monkeypatch, budgets, tmp_path):
    with monkeypatch.context() as patch:
        stop_after(patch, lambda ran: len(ran) > 6)
        module.calibrate(budgets)
    first = len(known_costs())
    ran = stop_after(monkeypatch, lambda ran: False)
    costs = module.calibrate(budgets)
    assert 0 < first < len(known_costs())
    assert {cost.measured for cost in costs.values()} == {"small job"}
    ran.clear()
    module.calibrate(budgets)
    assert ran == []


def test_the_estimate_names_rough_costs(tiny_suite, fresh_cache, monkeypatch, tmp_path):
    ran = stop_after(monkeypatch, lambda ran: any(job.stage == "score" for job in ran))
    found = estimate(tiny_suite, tmp_path / "new", device="cpu")
    missed = [job for job in make_plan(load_suite(tiny_suite)[0]).jobs if job.kind() not in known_costs()]
    assert sum(found.rough.values()) + found.unmeasured == len(missed)
    assert found.rough
    assert set(found.rough) <= {job.about()[subject] for job in missed for subject in ("explainer", "metric", "model")}
    assert len(ran) >= 4


def test_without_a_measured_job_of_its_stage_a_cost_stays_unknown(budgets):
    job = next(job for job in budgets.jobs if job.stage == "score")
    data = next(job for job in budgets.jobs if job.stage == "data")
    assert module.rough_cost(job, [(data, Cost(1.0, 1.0))]) is None
    assert module.rough_cost(job, [(job, Cost(1.0, 2.0)), (job, Cost(3.0, 4.0))]) == Cost(2.0, 3.0, measured="rough")


def test_what_cannot_do_with_few_passes_is_tried_with_its_own(fresh_cache):
    """A permutation of 64×64 pixels needs more passes than a small job has."""
    tables = {
        "name": "s",
        "title": "S",
        "cells": [{"datasets": ["xai-tris/lin-white-64x64"], "models": ["llr"]}],
        "training": {"epochs": 1},
        "explainers": {"shapley_sampling": {"budget": 5000}, "uniform": {}},
        "metrics": {"iou": {}},
    }
    plan = make_plan(parse_suite(tables))
    job = next(job for job in plan.jobs if job.passes)
    assert 4096 <= job.passes <= 5000
    assert module.calibrate(plan)[job.kind()].of(job) > 0


def test_what_is_there_costs_nothing(tiny_suite, tiny_run):
    found = estimate(tiny_suite, tiny_run, device="cpu", measure=False)
    assert (found.stages["done"] == found.stages["jobs"]).all()
    assert (found.seconds, found.unmeasured, found.memory_mb) == (0, 0, 0)


def test_disk_is_what_the_store_takes(tiny_suite, tiny_run):
    found = estimate(tiny_suite, tiny_run, device="cpu", measure=False).stages["disk_mb"]
    for stage in ("data", "explain", "score"):
        files = list((tiny_run / "store" / stage).iterdir())
        headers = {"data": 3e-4, "explain": 6e-4, "score": 0.0}[stage] * len(files)
        real = sum(path.stat().st_size for path in files) / (1 << 20)
        assert found[stage] + headers == pytest.approx(real, rel=0.1), stage


def test_without_measuring_unknown_costs_are_counted(tiny_suite, fresh_cache, tmp_path):
    found = estimate(tiny_suite, tmp_path / "new", device="cpu", measure=False)
    assert found.unmeasured == found.stages["jobs"].sum()
    assert not fresh_cache.exists()


def test_a_run_teaches_what_its_jobs_cost(tiny_suite, fresh_cache, tmp_path):
    assert known_costs() == {}
    run(tiny_suite, tmp_path / "run", engine="serial", device="cpu")
    known = known_costs()
    jobs = make_plan(load_suite(tiny_suite)[0]).jobs
    assert {job.kind() for job in jobs} == set(known)
    assert all(cost.measured == "run" and cost.each > 0 for cost in known.values())


def test_a_tiny_run_does_not_unteach_what_a_large_one_taught(tiny_suite, fresh_cache):
    job = make_plan(load_suite(tiny_suite)[0]).jobs[-1]
    remember({job.kind(): Cost(0.01, 1e-3, 1000.0, "run")})
    learn([Outcome(job, cpu_seconds=0.02)], "cpu")
    assert known_costs()[job.kind()].each == 1e-3, "six maps in 20 ms, which are mostly fixed"
    remember({job.kind(): Cost(0.01, 1e-3, 5.0, "small job")})
    learn([Outcome(job, cpu_seconds=0.04), Outcome(job, error="broke", cpu_seconds=9.0)], "cpu")
    assert known_costs()[job.kind()] == Cost(0.01, pytest.approx(0.03 / 6), 6.0, "run")


def test_every_job_is_written_down_once(tiny_run):
    records = JOBS.read(tiny_run)
    assert list(records.columns) == list(JOBS.columns)
    assert records["key"].is_unique
    assert records["stage"].value_counts().to_dict() == {"score": 28, "explain": 14, "train": 6, "data": 2}
    assert (records["seconds"] > 0).all()
    mlp = records.query("model == 'mlp' and metric == 'emd_perf'")
    assert set(mlp["explainer"]) == {"saliency", "lime", "pattern_net"}


def test_a_line_that_a_crash_cut_short_is_left_out(tiny_run, tmp_path):
    text = (tiny_run / "jobs.csv").read_text()
    (tmp_path / "jobs.csv").write_text(text[: len(text) - 40])
    assert len(JOBS.read(tmp_path)) == len(JOBS.read(tiny_run)) - 1
    assert len(JOBS.read(tmp_path / "nowhere")) == 0


def test_amounts_are_those_of_the_suite():
    jobs = make_plan(load_suite("xai-tris-64x64-paper")[0]).jobs
    by_stage = {job.stage: job for job in jobs}
    data, train, explain = by_stage["data"], by_stage["train"], by_stage["explain"]
    assert data.amount == 40_000
    assert data.disk_mb == pytest.approx(40_000 * (4096 * 5 + 8) / 2**20)
    white = next(job for job in jobs if job.stage == "data" and "lin-white" in job.name)
    assert white.sizes == (36_000, 2_000, 2_000)
    assert next(job for job in jobs if job.stage == "train").amount == 500 * 36_000
    assert len(train.seeds) == 5
    assert next(job for job in jobs if job.stage == "score").amount == 2_000
    assert next(job for job in jobs if job.stage == "explain" and job.part).amount == 100
    assert explain.kind() != explain.kind("cuda")
    control = next(job for job in jobs if job.stage == "explain" and job.network is None)
    assert control.kind() == control.kind("cuda"), "a control is made on the CPU"


def test_what_another_precision_costs_is_remembered_apart():
    tables = {
        "name": "s",
        "title": "S",
        "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
        "explainers": {"saliency": {}, "uniform": {}},
        "metrics": {"iou": {}, "deletion": {}},
    }
    other = tables | {"training": {"precision": "tf32"}, "explaining": {"precision": "tf32"}}
    exact, rounded = ({job.kind("cuda") for job in make_plan(parse_suite(each)).jobs} for each in (tables, other))
    same = [json.loads(kind)[:2] for kind in exact & rounded]
    assert sorted(same) == [["data", "xai-tris/lin-white-8x8"], ["explain", "uniform"], ["score", "iou"]]


def test_a_cache_that_cannot_be_written_is_passed_over(fresh_cache, monkeypatch):
    def refuse(path, data):
        raise module.StoreError("read-only")

    monkeypatch.setattr(module, "write_atomic", refuse)
    remember({"a": Cost(0.0, 1.0)})
    monkeypatch.setattr(module, "write_atomic", write_atomic)
    assert known_costs() == {}
    fresh_cache.parent.mkdir(exist_ok=True)
    fresh_cache.write_text("no json")
    assert known_costs() == {}
    remember({"a": Cost(0.5, 1.0, 20.0, "run")})
    assert known_costs() == {"a": Cost(0.5, 1.0, 20.0, "run")}
