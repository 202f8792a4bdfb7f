"""Suites that train networks over signal-to-noise ratios and explain nothing."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy.stats import t
from small_suites import write_suite

import xaibench as xb
from xaibench.report.page.write import make_report
from xaibench.runfolder.sample_file import read_samples
from xaibench.runner import run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed
from xaibench.runner.suites.parsing import load_suite, parse_suite
from xaibench.runner.suites.schema import SuiteError

TABLES = {
    "data": {"alphas": [0.9, 0.18, 0.3, 0.5, 0.7], "parameters": {"n_samples": 200}},
    "training": {"seeds": 2, "epochs": 1, "batch_size": 64, "stack": 2},
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr", "mlp"]}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = write_suite(tmp_path_factory.mktemp("ratios"), explainers={}, metrics={}, explaining={}, **TABLES)
    result = run(path, path.parent / "run", engine="serial")
    assert result.failures == {}
    return result.folder


def test_accuracies_are_listed_per_ratio_with_their_interval(folder):
    trainings, accuracy = pd.read_csv(folder / "trainings.csv"), pd.read_csv(folder / "accuracy.csv")
    assert len(trainings) == 5 * 2 * 2
    assert set(trainings["dataset"]) == {"xai-tris/lin-white-8x8"}
    assert not trainings["explained"].any()
    for row in accuracy.itertuples():
        chosen = trainings[(trainings["model"] == row.model) & (trainings["alpha"] == row.alpha)]
        reached = chosen["test_accuracy"].to_numpy()
        assert row.mean == pytest.approx(reached.mean())
        assert row.trainings == 2
        margin = t.ppf(0.975, 1) * reached.std(ddof=1) / np.sqrt(2)
        assert (row.low, row.high) == pytest.approx(
            (max(0, reached.mean() - margin), min(100, reached.mean() + margin)), abs=1e-5
        )
    # The paper's accuracy is that of its own ratio.
    assert set(accuracy.loc[accuracy["paper"].notna(), "alpha"]) == {0.18}


def test_the_sheet_has_one_sample_at_four_ratios(folder):
    (cell,) = [cell for cell in read_samples(folder) if not cell.model]
    assert cell.labels == ("0.18", "0.3", "0.7", "0.9")
    assert len(set(cell.samples)) == 1  # the same noise at every ratio
    data = xb.load("xai-tris/lin-white-8x8", alpha=0.3, n_samples=200, seed=0).test
    image, mask, target = data[cell.samples[1]]
    assert target == 0
    assert (cell.masks[1] == mask.numpy()).all()
    brightness = cell.images[1, ..., 0].ravel().astype(float)
    assert np.corrcoef(brightness, image.numpy().ravel())[0, 1] > 0.99


def test_page_and_terminal_show_the_ratios_instead_of_a_leaderboard(folder, tmp_path):
    report = make_report(folder, tmp_path)
    page = report.page.read_text()
    assert report.best.columns.tolist() == ["subset", "variant", "LLR from", "MLP from", "chosen", "paper"]
    assert report.best["paper"].tolist() == ["0.18"]
    assert report.ranked == {}
    assert (tmp_path / "figures" / "ratios.svg").exists()
    assert (tmp_path / "figures" / "ratio-samples.svg").exists()
    assert pd.read_csv(tmp_path / "tables" / "ratios.csv")["Paper"].tolist() == [0.18]
    assert "There is no score to rank" not in page


def suite_of(**changes):
    return parse_suite({"name": "ratios", "title": "Ratios"} | TABLES | changes)


def test_a_suite_that_only_trains_needs_both_to_score():
    for given, missing in (("explainers", "metrics"), ("metrics", "explainers")):
        chosen = {given: ["saliency" if given == "explainers" else "emd_perf"]}
        assert refused(SuiteError, f"state {missing}", partial(narrowed, suite_of(), **chosen)).parameter == missing
    suite = narrowed(suite_of(), explainers=["saliency"], metrics=["emd_perf"])
    assert sum(job.stage == "explain" for job in make_plan(suite).jobs) == 5 * 2


def test_every_ratio_has_its_own_data_and_trainings():
    plan = make_plan(suite_of())
    assert [cell.data.parameters["alpha"] for cell in plan.cells[::2]] == TABLES["data"]["alphas"]
    assert len({job.key for job in plan.jobs}) == 5 + 5 * 2


def test_one_ratio_in_a_list_is_the_same_data_as_the_parameter():
    listed = make_plan(suite_of(data={"alphas": [0.3], "parameters": {"n_samples": 200}}))
    stated = make_plan(suite_of(data={"parameters": {"n_samples": 200, "alpha": 0.3}}))
    assert [job.key for job in listed.jobs] == [job.key for job in stated.jobs]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": {"alphas": [0.1, 2.0]}}, "[data] alphas alpha: alpha=2.0"),
        ({"data": {"alphas": ["high"]}}, "[data] alphas"),
        ({"data": {"alphas": [0.1]}, "cells": [{"datasets": ["pet"], "models": ["mlp"]}]}, "[data] alphas"),
        ({"explainers": {"saliency": {}}}, "no metrics; add at least one"),
        ({"metrics": {"emd": {}}}, "no explainers; add at least one"),
    ],
)
def test_what_cannot_be_run_is_an_error(changes, words):
    refused(SuiteError, words, lambda: make_plan(suite_of(**changes)))


@pytest.mark.parametrize(("name", "count"), [("8x8", 10), ("64x64", 20)])
def test_the_built_in_suites_have_the_ratios_that_the_paper_chose(name, count):
    suite, _ = load_suite(f"xai-tris-{name}-snr")
    assert len(set(suite.data.alphas)) == count
    assert len(suite.training.seeds) == suite.training.stack == 10
    for dataset in {dataset for cell in suite.cells for dataset in cell.datasets if "imagenet" not in dataset}:
        assert xb.load(dataset, n_samples=200).parameters["alpha"] in suite.data.alphas


def test_the_sweep_at_8x8_is_2400_trainings():
    plan = make_plan(load_suite("xai-tris-8x8-snr")[0])
    assert sum(len(cell.trainings[0].seeds) for cell in plan.cells) == 2400
