"""The suite of certified networks: all of them, and what its jobs score."""

import numpy as np
import pytest
import torch

import xaibench as xb
from xaibench.benchmarks.certified.hand_set_networks import HAND_SET
from xaibench.data import load
from xaibench.explainers import EXPLAINERS
from xaibench.models import build
from xaibench.runner import load_suite
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.execute import execute, read_maps
from xaibench.runner.store import Store


@pytest.fixture(scope="module")
def jobs():
    return make_plan(load_suite("certified", quick=True)[0]).jobs


def test_all_networks_are_in_it():
    suite, _ = load_suite("certified")
    certified = [cell for cell in suite.cells if cell.datasets[0].startswith("certified:")]
    assert {f"certified:{name}" for name in HAND_SET} == {model for cell in certified for model in cell.models}
    assert all(model.startswith(f"{cell.datasets[0]}-") for cell in certified for model in cell.models)
    assert {part.use for part in suite.explainers} <= set(EXPLAINERS)  # a published suite does not grow with the table


def test_its_jobs_score_what_the_network_uses(jobs, tmp_path):
    store = Store(tmp_path)
    leaks = {}
    for job in jobs:
        score = job.stage == "score" and job.metric.name == "mass_outside"
        explained = job.explain.explainer.name if score else getattr(getattr(job, "explainer", None), "name", "")
        if job.stage in ("data", "train") or ((score or job.stage == "explain") and explained in ("saliency", "rise")):
            execute(job, store, "cpu")
        if score and explained in ("saliency", "rise"):
            leaks.setdefault(explained, []).extend(store.load_table("score", job.key)["value"])
    assert np.nanmax(leaks["saliency"]) == 0
    assert 0.8 < np.nanmean(leaks["rise"]) < 1.2
    trained = [store.load_meta("train", key) for job in jobs if job.stage == "train" for key in job.results]
    assert [record["test_accuracy"] for record in trained[:2]] == [1.0, 1.0]
    assert len(trained) == 3


def test_blind_networks_see_all_half_or_none_of_the_pattern():
    cells = [cell for cell in load_suite("certified")[0].cells if cell.models == ("blind:cnn",)]
    assert len(cells) == 6
    for cell in cells:
        masks = load(cell.datasets[0], seed=0, n_samples=100).test.masks.float()
        seen = build(*cell.models, (1, 8, 8), 2, **cell.build).visible
        share = masks[:, seen].sum() / masks.sum()
        assert share == {"all seen": 1, "half seen": 0.5, "none seen": 0}[cell.label.partition(", ")[2]]


def test_one_map_is_held_to_what_the_network_sees_and_to_what_the_data_tell(jobs, tmp_path):
    store = Store(tmp_path)
    blind = [job for job in jobs if job.about()["model"] == "blind:cnn" or job.about()["dataset"].startswith("xai")]
    wanted = {"": {""}, "saliency": {"", "mass_outside", "emd_perf"}, "sobel": {"", "mass_outside"}}
    done = [job for job in blind if job.about()["metric"] in wanted.get(job.about()["explainer"], ())]
    for job in done:
        execute(job, store, "cpu")
    test = load("xai-tris/lin-white-8x8", seed=0, n_samples=1000).test
    left = torch.zeros(10, 8, 8, dtype=torch.bool)
    left[..., :4] = True
    scored = {(job.about()["explainer"], job.about()["metric"]): job for job in done if job.stage == "score"}
    for (explainer, metric), job in scored.items():
        maps, masks = read_maps(store, job.explain), left if metric == "mass_outside" else test.masks[:10]
        expected = getattr(xb, metric)(maps, masks, reduction="none")
        assert store.load_table("score", job.key)["value"].to_numpy() == pytest.approx(np.asarray(expected)), explainer
    assert len(scored) == 3
    assert store.load_table("score", scored["saliency", "mass_outside"].key)["value"].max() == 0
    assert store.load_table("score", scored["sobel", "mass_outside"].key)["value"].mean() > 0.8
