"""The suite of creatures: its jobs score the removal of the parts of the data set, and its network comes with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refused
from some_scores import some_scores

import xaibench as xb
from xaibench.explainers import EXPLAINERS
from xaibench.metrics import part_rank
from xaibench.registry.parameters import Frozen
from xaibench.runner import load_suite
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.published_networks import published_records
from xaibench.runner.stages.execute import read_maps, read_network
from xaibench.runner.store import Store
from xaibench.runner.suites.schema import SuiteError


def test_its_jobs_remove_the_parts_of_the_data_set(tmp_path):
    suite, _ = load_suite("parts", quick=True)
    cells = tuple(replace(cell, training=Frozen({"epochs": 1})) for cell in suite.cells)
    small = replace(suite, cells=cells, data=replace(suite.data, parameters=Frozen({"n_samples": 200})))
    plan, store = make_plan(small), Store(tmp_path)
    wanted = {
        (explainer, metric) for explainer in ("saliency", "uniform") for metric in ("part_rank", "part_rank-mean")
    }
    scored = some_scores(plan.jobs, store, wanted)
    test = xb.load("parts/creatures-96x96", n_samples=200).test
    for each, scores in scored:
        maps = read_maps(store, each.explain)
        some = slice(0, len(maps))
        expected = part_rank(
            read_network(store, each.network),
            test.images[some],
            maps,
            test.targets[some],
            parts=test.parts[some],
            behind=test.behind[some],
            importance="mean" if each.metric.name.endswith("mean") else "sum",
            reduction="none",
        )
        np.testing.assert_allclose(scores, expected, atol=1e-9, err_msg=each.explain.explainer.name)
    assert len(scored) == 4


def test_every_network_comes_with_the_library_and_has_learned_its_task():
    suite, _ = load_suite("parts")
    plan = make_plan(suite)
    trainings = {job for cell in plan.cells for job in cell.trainings}
    assert all(job.published for job in trainings)
    records = published_records()
    mine = records[records["suite"] == "parts"]
    assert set(mine["model"]) == {model for cell in suite.cells for model in cell.models}
    assert mine["test_accuracy"].min() >= 0.95
    assert {part.use for part in suite.explainers} <= set(EXPLAINERS)


def test_the_published_network_uses_the_parts_that_decide_the_class():
    network = xb.published_network("parts/creatures-96x96", "parts_cnn")
    test = xb.load("parts/creatures-96x96", seed=1, n_samples=240, split=(0.4, 0.1, 0.5)).test
    with torch.inference_mode():
        whole = network(test.images)
        right = whole.argmax(1) == test.targets
        assert right.float().mean() > 0.9
        rows = torch.arange(len(test))
        drops = []
        for part in range(1, 8):
            removed = torch.stack([test.without(row, part) for row in range(len(test))])
            drops.append(float((whole - network(removed))[rows, test.targets][right].mean()))
    order = np.argsort(drops)[::-1] + 1
    assert {*order[:4].tolist()} == {1, 2, 4, 6}  # tail, feet, beak and wing


@pytest.mark.parametrize("name", ["parts", "behind"])
def test_a_suite_does_not_state_the_parts(name, tmp_path):
    file = tmp_path / "own.toml"
    text = 'name = "own"\ntitle = "Own"\n[[cells]]\ndatasets = ["parts/creatures-96x96"]\nmodels = ["parts_cnn"]\n'
    text += "[data]\nparameters = { n_samples = 80 }\n[explainers]\nsaliency = {}\n"
    file.write_text(f"{text}[metrics]\npart_rank = {{ {name} = 1 }}\n", encoding="utf-8")
    refused(SuiteError, name, lambda: make_plan(load_suite(str(file))[0]))
