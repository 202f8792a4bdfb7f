"""The suite of certified networks: all of them, every explainer that can treat one, and what its jobs score."""

import numpy as np
import pytest

from xaibench.explainers import EXPLAINERS
from xaibench.models.certified.hand_set import HAND_SET
from xaibench.runner import load_suite
from xaibench.runner.plan.planning import make_plan
from xaibench.runner.stages.execution import execute
from xaibench.runner.store.result_store import Store


@pytest.fixture(scope="module")
def jobs():
    return make_plan(load_suite("certified", quick=True)[0]).jobs


def test_all_networks_and_every_explainer_that_can_treat_one_are_in_it():
    suite, _ = load_suite("certified")
    assert {f"certified:{name}" for name in HAND_SET} == {model for cell in suite.cells for model in cell.models}
    assert all(model.startswith(f"{cell.datasets[0]}-") for cell in suite.cells for model in cell.models)
    # These need global average pooling, attention, or stand in it under another name.
    assert set(EXPLAINERS) - {part.use for part in suite.explainers} == {"cam", "attention_rollout", "lrp"}


def test_its_jobs_score_what_the_network_uses(jobs, tmp_path):
    store = Store(tmp_path)
    leaks = {}
    for job in jobs:
        score = job.stage == "score" and job.metric.name == "leak"
        explained = job.explain.explainer.name if score else getattr(getattr(job, "explainer", None), "name", "")
        if job.stage in ("data", "train") or ((score or job.stage == "explain") and explained in ("saliency", "rise")):
            execute(job, store, "cpu")
        if score and explained in ("saliency", "rise"):
            leaks.setdefault(explained, []).extend(store.load_table("score", job.key)["value"])
    assert np.nanmax(leaks["saliency"]) == 0
    assert 0.8 < np.nanmean(leaks["rise"]) < 1.2
    trained = [store.load_meta("train", key) for job in jobs if job.stage == "train" for key in job.results]
    assert [record["test_accuracy"] for record in trained] == [1.0, 1.0]
