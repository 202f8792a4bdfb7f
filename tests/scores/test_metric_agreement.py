from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import xaibench as xb
from xaibench.scores.cells import cell_matrices
from xaibench.scores.metric_agreement import (
    TABLE_4_EXPLAINERS,
    agreements,
    mean_agreements,
    resample_correlation,
    table_4,
)
from xaibench.scores.results import read_run


@pytest.fixture(scope="module")
def run(annotated_run):
    return read_run(annotated_run)


def test_coefficients_are_those_of_the_metrics_package(run):
    found = agreements(run)
    assert {key[0] for key in found} == {"pet", "scene"}
    assert {key[3] for key in found} == set(TABLE_4_EXPLAINERS)
    scores = run.scores[run.scores["scored"] & (run.scores["explainer"] == "rise") & (run.scores["subset"] == "pet")]
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
    low, high = row["cells"][0]["interval"]
    assert low < ours < high


@pytest.mark.parametrize("pair", [("iou", "deletion"), ("deletion", "hit")])
def test_resampled_correlations_are_those_of_groups_drawn_again(run, pair):
    (cell,) = (each for each in cell_matrices(run) if each.cell[0] == "pet")
    groups = np.arange(len(cell.values)) // 3
    cell = replace(cell, values=cell.values.round(1), groups=groups)  # with ties
    found = resample_correlation(run, cell, pair, "rise", 20, 5)
    count = groups.max() + 1
    drawn = np.random.default_rng(5).multinomial(count, np.full(count, 1 / count), 20)
    table = pd.DataFrame(cell.values[:, :, cell.methods.index("rise")], columns=list(cell.metrics))
    for i, counts in enumerate([np.ones(count, int), *drawn]):
        again = xb.metrics.agreement(table.loc[np.repeat(table.index, counts[groups]), list(pair)])
        assert found[i] == pytest.approx(again.coefficients.loc[pair], abs=1e-12)
        assert again.kind.loc[pair] == ("point-biserial" if "hit" in pair else "spearman")


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
