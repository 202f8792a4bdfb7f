"""Methods at equal cost: what the suites compare, and that no budget of theirs is one that a method cannot keep."""

import pandas as pd
import pytest
from generators.photographs import write

from xaibench.runner import SuiteError, load_suite, run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed
from xaibench.runner.suites.schema import with_folders


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


def test_a_budget_that_images_of_a_set_do_not_allow_is_refused_on_its_line(tmp_path):
    text = load_suite("budget", quick=True)[1].replace('sobol-1000 = { use = "sobol", budget = 1000 }', SOBOL)
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('"kernel_shap-25", "kernel_shap-100"', '"sobol-100", "kernel_shap-100"'))
    with pytest.raises(
        SuiteError, match=r"sobol-100: Sobol: got budget=100, expected at least 130, .* change grid_size below 8"
    ):
        make_plan(load_suite(path)[0])


SOBOL = 'sobol-100 = { use = "sobol", budget = 100 }'


def test_photographs_are_explained_at_their_budgets(tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "photographs")
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path / "photographs"))
    suite = with_folders(narrowed(load_suite("budget-photographs")[0], models=["generators.photographs:Colors"]))
    assert {job.explainer.name for job in make_plan(suite).jobs if job.stage == "explain"} >= {"rise-10000", "xrai-100"}
    asked = {"root": tmp_path / "photographs", "models": ["generators.photographs:Colors"], "samples": 2}
    asked |= {"explainers": ["kernel_shap-25", "kernel_shap-100"], "metrics": ["deletion"]}
    done = run("budget-photographs", tmp_path / "run", engine="serial", device="cpu", **asked)
    assert done.failures == {}
    scores = pd.read_parquet(done.folder / "scores.parquet").pivot(index="sample", columns="explainer", values="value")
    assert set(scores) == {"kernel_shap-25", "kernel_shap-100", "sobel", "uniform", "center_prior"}
    assert not scores["kernel_shap-25"].equals(scores["kernel_shap-100"])
