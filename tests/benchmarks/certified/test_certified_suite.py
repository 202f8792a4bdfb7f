"""The suite of certified networks: all of them, and what its jobs score."""

import numpy as np
import pytest
import torch
from some_scores import some_scores

import xaibench as xb
from xaibench.data import load
from xaibench.models import build
from xaibench.runner import load_suite
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.execute import read_maps
from xaibench.runner.store import Store


@pytest.fixture(scope="module")
def jobs():
    return make_plan(load_suite("certified", quick=True)[0]).jobs


def test_its_jobs_score_what_the_network_uses(jobs, tmp_path):
    store = Store(tmp_path)
    leaks = {"saliency": [], "rise": []}
    for each, scores in some_scores(jobs, store, {("saliency", "mass_outside"), ("rise", "mass_outside")}):
        leaks[each.explain.explainer.name].extend(scores)
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
    wanted = {("saliency", "mass_outside"), ("saliency", "emd_perf"), ("sobel", "mass_outside")}
    done = some_scores(blind, store, wanted)
    test = load("xai-tris/lin-white-8x8", seed=0, n_samples=1000).test
    left = torch.zeros(10, 8, 8, dtype=torch.bool)
    left[..., :4] = True
    found = {}
    for each, scores in done:
        explainer, metric = each.explain.explainer.name, each.metric.name
        maps, masks = read_maps(store, each.explain), left if metric == "mass_outside" else test.masks[:10]
        expected = getattr(xb, metric)(maps, masks, reduction="none")
        assert scores == pytest.approx(np.asarray(expected)), explainer
        found[explainer, metric] = scores
    assert len(found) == 3
    assert found["saliency", "mass_outside"].max() == 0
    assert found["sobel", "mass_outside"].mean() > 0.8
