import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import friedmanchisquare

from xaibench.report.numbers.mean_ranks import Ranking, rankings
from xaibench.report.numbers.score_summary import summarise
from xaibench.report.read.run_results import read_run
from xaibench.statistics import critical_difference


def ranking(ranks, difference):
    return Ranking("m", ranks, 10, "cells", difference, 0.01, ())


@pytest.mark.parametrize("seed", range(20))
def test_cliques_are_the_largest_runs_within_the_difference(seed):
    values = np.sort(np.random.default_rng(seed).uniform(1, 8, 7)).round(1)
    names = list("abcdefg")
    runs = [
        set(names[i:j]) for i, j in itertools.combinations(range(8), 2) if j - i > 1 and values[j - 1] - values[i] < 1.5
    ]
    largest = [run for run in runs if not any(run < other for other in runs)]
    found = ranking(dict(zip(names, values, strict=True)), 1.5).cliques
    assert sorted(map(sorted, found)) == sorted(map(sorted, largest))


def test_over_cells_ranks_are_those_within_cells(shared_run):
    run = read_run(shared_run)
    summary = summarise(run)
    found = rankings(run, summary)["emd_perf"]
    assert (found.unit, found.blocks) == ("cells", 18)
    assert found.left_out == ("guided_gradcam",)  # of convolutions only
    wide = summary[summary["metric"] == "emd_perf"].astype(
        dict.fromkeys(("scenario", "background", "model", "explainer"), str)
    )
    wide = wide.pivot(index=["scenario", "background", "model"], columns="explainer", values="median")
    wide = wide.drop(columns="guided_gradcam")
    expected = wide.rank(axis=1, ascending=False).mean()
    assert list(found.ranks) == expected.sort_values().index.tolist()
    assert found.ranks == pytest.approx(expected.to_dict())
    assert found.difference == critical_difference(16, 18)
    assert found.p == pytest.approx(friedmanchisquare(*wide.rank(axis=1).to_numpy().T).pvalue)


def test_over_samples_a_group_counts_once_with_its_mean_over_models(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    other = scores.assign(model="vgg16", value=scores["value"] * 0.5)
    pd.concat([scores, other]).to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    found = rankings(run, summarise(run))["deletion"]
    mine = scores[scores["correct"] & (scores["metric"] == "deletion")].copy()
    mine["patient"] = mine["dataset"] + (mine["sample"] // 2).astype(str)
    # The mean over two models, one with half of the other's scores, is three quarters: the same ranks.
    wide = mine.pivot_table(index="patient", columns="explainer", values="value")
    assert (found.unit, found.blocks) == ("samples", len(wide))
    assert found.ranks == pytest.approx(wide.rank(axis=1).mean().to_dict())
    assert next(iter(found.ranks)) == wide.rank(axis=1).mean().idxmin()  # lower is better


def test_an_explainer_that_one_cell_lacks_is_left_out(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores = scores[(scores["explainer"] != "cam") | (scores["dataset"] != "pet")]
    scores.to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    found = rankings(run, summarise(run))["iou"]
    assert found.left_out == ("cam",)
    assert "cam" not in found.ranks


def test_two_methods_or_one_block_are_not_ranked(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores[scores["explainer"].isin(["cam", "rise"])].to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    assert rankings(run, summarise(run)) == {}
    scores[(scores["dataset"] == "pet") & (scores["sample"] < 1)].to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    assert rankings(run, summarise(run)) == {}


def test_scores_that_are_all_the_same_have_no_test(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet").assign(value=0.5)
    scores.to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    found = rankings(run, summarise(run))["iou"]
    assert np.isnan(found.p)
    assert found.cliques == [tuple(found.ranks)]
