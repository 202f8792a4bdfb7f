"""Reference explainers in a suite: they are not ranked, and the mass of every map is split by their maps."""

import numpy as np
import pandas as pd
import pytest
from small_suites import write_suite

import xaibench as xb
from xaibench.report import write_report
from xaibench.runner import run
from xaibench.runner.plan.jobs import ExplainJob
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.execute import read_network
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import load_suite
from xaibench.scores.results import read_run
from xaibench.scores.shares import SHARE_LABELS, SHARE_PARTS, share_bars, share_means
from xaibench.scores.summary import summarize

TABLES = {
    "data": {"seeds": [0, 1], "parameters": {"n_samples": 60}},
    "training": {"seeds": [0], "method": "none"},
    "explaining": {"samples": 4, "scored": "all"},
    "cells": [{"datasets": ["xai-tris/lin-corr-8x8", "certified:and"], "models": ["mlp"]}],
    "explainers": {"saliency": {}, "uniform": {}, "reliance": {"n_samples": 4}},
    "metrics": {"mass_accuracy": {}},
}


@pytest.fixture(scope="module")
def referred(tmp_path_factory):
    folder = tmp_path_factory.mktemp("referred")
    result = run(write_suite(folder, **TABLES), folder / "run", engine="serial", device="cpu")
    assert result.failures == {}
    return result.folder


def test_the_shares_are_those_of_python(referred):
    rows = pd.read_parquet(referred / "shares.parquet")
    assert set(rows["dataset"]) == {"xai-tris/lin-corr-8x8"}  # the distribution of the others is unknown
    assert set(rows["explainer"]) == {"saliency", "uniform", "reliance"}
    assert len(rows) == 3 * 2 * 4
    plan, store = make_plan(load_suite(referred / "suite.toml")[0]), Store(referred / "store")
    for cell in plan.cells[:2]:
        data = xb.load(cell.data.name, seed=cell.data.seed, n_samples=60)
        images, masks, targets = data.test[:4]
        model = read_network(store, cell.networks[0])
        faithful = xb.explain(
            "reliance", model, images, targets, distribution=data.distribution(), n_samples=4, device="cpu"
        )
        for name in ("saliency", "reliance"):
            maps = faithful if name == "reliance" else xb.explain(name, model, images, targets, device="cpu")
            expected = xb.shares(maps, masks, faithful, reduction="none")
            mine = rows[(rows["explainer"] == name) & (rows["data_seed"] == cell.data.seed)].sort_values("sample")
            for share in SHARE_PARTS:
                assert np.allclose(mine[share], getattr(expected, share), atol=1e-6)
    assert np.allclose(rows[list(SHARE_PARTS)].sum(axis=1), 1)
    assert np.allclose(rows.loc[rows["explainer"] == "reliance", "not_relied_on"], 0)


def test_a_reference_is_ranked_with_none(referred):
    results = read_run(referred)
    assert list(results.references) == ["reliance"]
    assert list(results.explainers) == ["saliency", "uniform"]
    assert set(results.reference_scores["explainer"]) == {"reliance"}
    summary = summarize(results)
    assert set(summary["explainer"]) == {"saliency", "uniform"}
    assert summary["rank"].max() <= 2
    every = pd.read_parquet(referred / "scores.parquet")
    assert len(every) == len(results.scores) + len(results.reference_scores)


def test_means_and_intervals_are_over_what_was_drawn(referred):
    found = {row.explainer: row for row in share_means(read_run(referred))}
    rows = pd.read_parquet(referred / "shares.parquet")
    for name, row in found.items():
        mine = rows[(rows["explainer"] == name) & rows["scored"]]
        assert row.cell == ("lin", "corr", "mlp")
        assert np.allclose(row.means, mine[list(SHARE_PARTS)].mean())
        assert sum(row.means) == pytest.approx(1)
        for mean, (low, high) in zip(row.means, row.intervals, strict=True):
            assert 0 <= low <= mean <= high <= 1
    assert list(found) == ["reliance", "saliency", "uniform"]
    assert found["reliance"].means[2] == 0
    assert found["uniform"].means[2] > 0
    low, high = found["uniform"].intervals[0]
    between = rows[rows["explainer"] == "uniform"].groupby("data_seed")["on_truth"].mean()
    assert high - low > np.ptp(between)  # two data sets: the interval is wider than their difference


def test_the_page_shows_them_as_bars_and_as_text(referred):
    bars = share_bars(read_run(referred))
    (table,) = bars.tables
    assert (table.title, table.heads, list(table.rows)) == (
        "CORR",
        (("LIN", "MLP"),),
        ["reliance", "saliency", "uniform"],
    )
    html = write_report(referred).read_text()
    _, _, section = html.partition('<h3 id="shares">')
    section = section.partition("</section>")[0]
    (row,) = table.rows["saliency"]
    text = " · ".join(f"{100 * share:.0f}" for share in row.means)
    assert text in section
    assert section.count('class="part share-3"') == 1 + 3  # the legend's, and one a method
    assert "<summary>Scores of Reliance</summary>" in section
    csv = pd.read_csv(referred / "tables" / "shares.csv")
    assert len(csv) == 3
    assert {f"{SHARE_LABELS[0].capitalize()}{end}" for end in ("", " low", " high")} <= set(csv.columns)


def test_a_suite_without_a_reference_has_no_shares(tiny_run):
    assert not (tiny_run / "shares.parquet").exists()
    results = read_run(tiny_run)
    assert share_means(results) == []
    assert share_bars(results) is None


def test_a_reference_needs_a_set_that_is_known(tmp_path):
    plan = make_plan(load_suite(write_suite(tmp_path, **TABLES))[0])
    explained = [job for job in plan.jobs if isinstance(job, ExplainJob) and job.explainer.name == "reliance"]
    assert {job.data.name for job in explained} == {"xai-tris/lin-corr-8x8"}
    assert all(job.network for job in explained)
