"""Methods at equal cost: what the suites compare, and that no budget of theirs is one that a method cannot keep."""

import tomllib

import pandas as pd
import pytest
from generators.photographs import write
from refusals import refused

from xaibench.runner import SuiteError, load_suite, run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed, without_missing
from xaibench.runner.suites.parsing import parse_suite


@pytest.mark.parametrize("name", ["budget", "budget-certified", "budget-photographs"])
def test_every_method_that_samples_stands_at_each_budget(name):
    suite, _ = load_suite(name)
    found = {}
    for part in suite.explainers:
        if budget := part.parameters.get("budget"):
            assert part.name == f"{part.use}-{budget}"
            found.setdefault(part.use, []).append(budget)
    assert found.pop("kernel_shap") == [25, 100, 1000, 10000], "as the released runs have it, and then more"
    assert found.pop("lime") == [50, 100, 1000, 10000]
    if name != "budget-photographs":
        assert found.pop("sobol") == [1000, 10000], "64 cells take 130"
    assert all(budgets == [100, 1000, 10000] for budgets in found.values())
    assert len(found) >= 11


@pytest.mark.parametrize("name", ["budget", "budget-certified"])
def test_their_jobs_can_be_planned(name):
    jobs = make_plan(load_suite(name, quick=True)[0]).jobs
    explained = [job.explainer.name for job in jobs if job.stage == "explain"]
    assert [entry for entry in explained if entry.startswith("kernel")] == [
        "kernel_shap-25",
        "kernel_shap-100",
        "kernel_shap-1000",
    ]
    assert "saliency" in explained


def test_a_budget_that_images_of_a_set_do_not_allow_is_refused():
    tables = tomllib.loads(load_suite("budget", quick=True)[1])
    tables["explainers"]["sobol-100"] = {"use": "sobol", "budget": 100}
    for cell in tables["cells"]:
        cell["explainers"] = ["sobol-100"]
    error = refused(SuiteError, "expected at least 130", make_plan, parse_suite(tables))
    assert (error.table, error.parameter) == ("[explainers.sobol-100]", "budget")


def test_photographs_are_explained_at_their_budgets(tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "photographs")
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path / "photographs"))
    suite = without_missing(narrowed(load_suite("budget-photographs")[0], models=["generators.photographs:Colors"]))[0]
    assert {job.explainer.name for job in make_plan(suite).jobs if job.stage == "explain"} >= {"rise-10000", "xrai-100"}
    asked = {"root": tmp_path / "photographs", "models": ["generators.photographs:Colors"], "samples": 2}
    asked |= {"explainers": ["kernel_shap-25", "kernel_shap-100"], "metrics": ["deletion"]}
    done = run("budget-photographs", tmp_path / "run", engine="serial", device="cpu", **asked)
    assert done.failures == {}
    scores = pd.read_parquet(done.folder / "scores.parquet").pivot(index="sample", columns="explainer", values="value")
    assert set(scores) == {"kernel_shap-25", "kernel_shap-100", "sobel", "uniform", "center_prior"}
    assert not scores["kernel_shap-25"].equals(scores["kernel_shap-100"])
