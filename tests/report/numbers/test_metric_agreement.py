import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import friedmanchisquare

import xaibench as xb
from xaibench.report.numbers.metric_agreement import (
    TABLE_4_EXPLAINERS,
    Ranking,
    agreements,
    mean_agreements,
    rankings,
    table_4,
)
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import read_run
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
    summary = summarize(run)
    found = rankings(run, summary)["emd_perf"]
    assert (found.unit, found.blocks) == ("cells", 18)
    assert found.left_out == ("guided_gradcam",)  # of convolutions only
    wide = summary[summary["metric"] == "emd_perf"].astype(
        dict.fromkeys(("subset", "variant", "model", "explainer"), str)
    )
    wide = wide.pivot(index=["subset", "variant", "model"], columns="explainer", values="median")
    wide = wide.drop(columns="guided_gradcam")
    expected = wide.rank(axis=1, ascending=False).mean()
    assert list(found.ranks) == expected.sort_values().index.tolist()
    assert found.ranks == pytest.approx(expected.to_dict())
    assert found.difference == critical_difference(16, 18)
    assert found.p == pytest.approx(friedmanchisquare(*wide.rank(axis=1).to_numpy().T).pvalue)


def test_each_data_set_and_training_has_a_ranking_of_its_own(shared_run, tmp_path):
    """Two data sets that turn the order round: over cells alone, as sure as one of them; over both, nothing is."""
    folder = shutil.copytree(shared_run, tmp_path / "two")
    scores = pd.read_parquet(folder / "scores.parquet")
    once = rankings(read_run(folder), summarize(read_run(folder)))["emd_perf"]
    other = scores.assign(data_seed=1, value=1 - scores["value"])
    pd.concat([scores, other]).to_parquet(folder / "scores.parquet")
    found = rankings(read_run(folder), summarize(read_run(folder)))["emd_perf"]
    assert (found.blocks, found.unit) == (18, "cells")
    assert list(found.ranks.values()) == pytest.approx([8.5] * 16)  # the middle of 16
    assert found.difference > 1.5 * once.difference
    assert found.cliques == [tuple(found.ranks)]
    pd.concat([scores, scores.assign(data_seed=1)]).to_parquet(folder / "scores.parquet")
    again = rankings(read_run(folder), summarize(read_run(folder)))["emd_perf"]
    assert again.ranks == pytest.approx(once.ranks)
    assert again.difference > once.difference  # two data sets have a single degree of freedom


def test_over_samples_a_group_counts_once_with_its_mean_over_models(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    other = scores.assign(model="vgg16", value=scores["value"] * 0.5)
    pd.concat([scores, other]).to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    found = rankings(run, summarize(run))["deletion"]
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
    found = rankings(run, summarize(run))["iou"]
    assert found.left_out == ("cam",)
    assert "cam" not in found.ranks


def test_two_methods_or_one_block_are_not_ranked(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores[scores["explainer"].isin(["cam", "rise"])].to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    assert rankings(run, summarize(run)) == {}
    scores[(scores["dataset"] == "pet") & (scores["sample"] < 1)].to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    assert rankings(run, summarize(run)) == {}


def test_scores_that_are_all_the_same_have_no_test(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet").assign(value=0.5)
    scores.to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    found = rankings(run, summarize(run))["iou"]
    assert np.isnan(found.p)
    assert found.cliques == [tuple(found.ranks)]


@pytest.fixture(scope="module")
def run(annotated_run):
    return read_run(annotated_run)


def test_coefficients_are_those_of_the_metrics_package(run):
    found = agreements(run)
    assert {key[0] for key in found} == {"pet", "scene"}
    assert {key[3] for key in found} == set(TABLE_4_EXPLAINERS)
    scores = run.scores[run.scores["correct"] & (run.scores["explainer"] == "rise") & (run.scores["subset"] == "pet")]
    wide = scores.astype({"metric": str}).pivot(index="sample", columns="metric", values="value")[list(run.metrics)]
    expected = xb.metrics.agreement(wide)
    one = found["pet", "-", "resnet18", "rise"]
    pd.testing.assert_frame_equal(one.coefficients, expected.coefficients, check_names=False)
    pd.testing.assert_frame_equal(one.n, expected.n, check_names=False)
    pd.testing.assert_frame_equal(one.kind, expected.kind, check_names=False)
    assert one.kind.loc["hit", "iou"] == "point-biserial"
    assert one.coefficients.loc["deletion", "insertion"] > 0.3  # turned first


def test_undefined_scores_are_left_out_of_their_pairs_alone(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores.loc[(scores["metric"] == "iou") & (scores["sample"] < 5), "value"] = np.nan
    scores.loc[scores["metric"] == "f1", "value"] = 0.5
    scores.assign(correct=True).to_parquet(fresh_annotated_run / "scores.parquet")
    one = agreements(read_run(fresh_annotated_run))["scene", "-", "resnet18", "gradcam"]
    assert one.n.loc["iou", "recall"] == 19
    assert one.n.loc["recall", "precision"] == 24
    assert np.isnan(one.coefficients.loc["f1"]).all()


def test_the_mean_is_over_the_sets_where_it_is_defined(run):
    found = agreements(run)
    means = mean_agreements(found)
    parts = [one for key, one in found.items() if key[3] == "gradcam"]
    expected = np.mean([part.coefficients.loc["hit", "iou"] for part in parts])
    assert means["gradcam"].coefficients.loc["hit", "iou"] == pytest.approx(expected)
    assert means["gradcam"].n.loc["hit", "iou"] == sum(part.n.loc["hit", "iou"] for part in parts)
    parts[0].coefficients.loc["hit", "iou"] = np.nan
    assert mean_agreements(found)["gradcam"].coefficients.loc["hit", "iou"] == parts[1].coefficients.loc["hit", "iou"]


def test_table_4_stands_beside_the_papers_sets(run):
    found = agreements(run)
    rows = table_4(run, found)
    assert len(rows) == 2 * 6
    row = next(row for row in rows if row["cell"] == "pet · ResNet-18" and row["pair"] == "Deletion & Pointing game")
    assert [entry["theirs"] for entry in row["cells"]] == [-0.9, -0.6, -0.9]
    ours = found["pet", "-", "resnet18", "gradcam"].coefficients.loc["deletion", "hit"]
    assert row["cells"][0]["ours"] == pytest.approx(ours)
    assert row["cells"][0]["difference"] == pytest.approx(ours + 0.9)


def test_beside_another_set_the_papers_column_is_empty(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet").replace({"pet": "tumor"})
    scores = scores[(scores["dataset"] == "tumor") & ~scores["explainer"].isin(["gradcam"])]
    scores.to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    rows = table_4(run, agreements(run))
    assert {entry["theirs"] for row in rows for entry in row["cells"]} == {None}
    assert {len(row["cells"]) for row in rows} == {2}


def test_without_the_papers_explainers_the_first_methods_are_shown(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores[~scores["explainer"].isin(TABLE_4_EXPLAINERS)].to_parquet(fresh_annotated_run / "scores.parquet")
    found = agreements(read_run(fresh_annotated_run))
    assert list(dict.fromkeys(key[3] for key in found)) == ["cam", "gradcam++", "guided_backprop"]


def test_two_metrics_make_no_matrix(shared_run):
    assert agreements(read_run(shared_run)) == {}
