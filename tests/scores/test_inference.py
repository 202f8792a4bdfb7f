import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from oracles.report_tables import holm, ranks_over_samples, t_of_groups

from xaibench.runfolder.schema import COMPARISONS
from xaibench.scores import SamplingDesign, nested_means
from xaibench.scores.cells import bundled, cell_matrices, resampled_means
from xaibench.scores.results import read_run
from xaibench.scores.summary import ALL_PAIRS, infer, summarize

CELL = ["subset", "variant", "model"]

#: Controls that are the answer by construction in RIGID WHITE.
ANSWERS = ("input", "laplace")


def inferred(folder):
    run = read_run(folder)
    return infer(run, summarize(run))


def change_scores(folder, change):
    scores = pd.read_parquet(folder / "scores.parquet")
    changed = change(scores)
    (scores if changed is None else changed).to_parquet(folder / "scores.parquet")


def test_tests_and_ranks_are_the_literal_ones(fresh_annotated_run):
    """Ten patients of two samples each, with missing and undefined scores among them."""

    def change(scores):
        few = scores[(scores["sample"] < 20) & scores["metric"].isin(["iou", "deletion"])]
        few = few[few["explainer"].isin(["gradcam", "rise", "saliency", "sobel", "input"])]
        few.loc[(few["explainer"] == "rise") & (few["sample"] == 3), "value"] = np.nan
        return few[~((few["explainer"] == "saliency") & (few["sample"] == 5))]

    change_scores(fresh_annotated_run, change)
    summary, pairs = inferred(fresh_annotated_run)
    group = {i: f"patient {i // 2}" for i in range(20)}
    raw = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    assert len(pairs) == 2 * 2 * 10
    for (dataset, metric), part in raw.groupby(["dataset", "metric"]):
        rows = part.to_dict("records")
        mine = pairs[(pairs["subset"] == dataset) & (pairs["metric"] == metric)]
        expected = [
            t_of_groups(rows, first, second, group) for first, second in zip(mine["first"], mine["second"], strict=True)
        ]
        assert mine["difference"].tolist() == pytest.approx([difference for difference, _ in expected], rel=1e-4)
        student = np.array([p for _, p in expected])  # rounding counts as none
        assert (mine["p"] >= student * (1 - 1e-4)).all()  # more where the differences of methods are skewed
        assert (mine["p"] <= 2 * student + 0.2).all()
        assert mine["p_holm"].tolist() == pytest.approx(holm(mine["p"].tolist()))
        ranks, n = ranks_over_samples(rows)
        found = summary[(summary["subset"] == dataset) & (summary["metric"] == metric)].set_index("explainer")
        assert found["sample_rank"].to_dict() == pytest.approx(ranks)
        assert (found["n_ranked"] == n).all()
        assert_standing_follows(found, mine, higher=metric == "iou")


def assert_standing_follows(found, pairs, *, higher):
    wins = {}
    for row in pairs.to_dict("records"):
        ahead = row["difference"] > 0 if higher else row["difference"] < 0
        better, worse = (row["first"], row["second"]) if ahead else (row["second"], row["first"])
        wins[better, worse] = row["p_holm"]
    for name in ("gradcam", "rise", "saliency"):
        against = [wins.get((name, control), 1.0) for control in ("sobel", "input")]
        assert found.loc[name, "p_controls"] == pytest.approx(max(against))
        assert found.loc[name, "beats_controls"] == (max(against) < 0.05)
        assert found.loc[name, "better_than"] == sum(p < 0.05 for (one, _), p in wins.items() if one == name)
        assert found.loc[name, "worse_than"] == sum(p < 0.05 for (_, other), p in wins.items() if other == name)
        assert found.loc[name, "compared_with"] == 4
    assert found.loc[["sobel", "input"], ["p_controls", "beats_controls"]].isna().all(axis=None)


def test_samples_of_one_group_make_the_interval_wider(fresh_annotated_run):
    def change(scores):
        patient = np.random.default_rng(0).normal(size=24)
        scores["value"] = patient[scores["sample"] // 4] + 0.01 * scores["value"]
        scores["correct"] = True
        return scores[scores["metric"].isin(["iou", "deletion"])]  # each metric is concluded from by itself

    change_scores(fresh_annotated_run, change)
    table = pd.read_csv(fresh_annotated_run / "samples.csv")
    table["group"] = table["sample"] // 4
    table.to_csv(fresh_annotated_run / "samples.csv", index=False)
    grouped, _ = inferred(fresh_annotated_run)
    table.drop(columns="group").to_csv(fresh_annotated_run / "samples.csv", index=False)
    alone, _ = inferred(fresh_annotated_run)
    (fresh_annotated_run / "samples.csv").unlink()
    without, _ = inferred(fresh_annotated_run)
    width, narrow = ((part["high"] - part["low"]).mean() for part in (grouped, alone))
    assert 1.9 < width / narrow < 3.2  # four equal samples are one, and six groups have wide tails
    pd.testing.assert_frame_equal(alone, without)


def test_an_interval_never_leaves_the_range_of_its_metric(fresh_annotated_run):
    all_hit = 1.0

    def change(scores):
        scores = scores[scores["metric"] == "hit"]
        return scores.assign(
            value=np.where(scores["explainer"] == "rise", all_hit, scores["sample"] == 0), correct=True
        )

    change_scores(fresh_annotated_run, change)
    found, _ = inferred(fresh_annotated_run)
    assert found["low"].min() >= 0
    assert found["high"].max() == pytest.approx(1)
    rise = found[found["explainer"] == "rise"]
    assert rise["low"].between(0.7, 0.9).all()  # a dozen patients all hit do not make sure of the next one
    parts = json.loads((fresh_annotated_run / "descriptions.json").read_text())
    parts["metrics"]["hit"]["attains_ends"] = False
    (fresh_annotated_run / "descriptions.json").write_text(json.dumps(parts))
    found, _ = inferred(fresh_annotated_run)
    assert (found.loc[found["explainer"] == "rise", "low"] == 1).all()  # Student's t of a constant


def test_of_many_methods_the_pairs_with_a_control_are_corrected_by_themselves(shared_findings):
    run, summary, pairs = shared_findings
    assert pairs.columns.tolist() == list(COMPARISONS.columns)
    assert len(run.explainers) > ALL_PAIRS
    controls = pairs[["first", "second"]].map(lambda name: run.explainers[name].control).sum(axis=1)
    assert set(controls) == {0, 1}
    for _, family in pairs.groupby([*CELL, "metric", controls]):
        assert family["p_holm"].tolist() == pytest.approx(holm(family["p"].tolist()))
    per_cell = pairs.groupby([*CELL, "metric", controls]).size()
    assert per_cell["lin", "white", "mlp", "emd_perf"].tolist() == [12 * 11 / 2, 12 * 4]
    assert per_cell["lin", "white", "cnn", "emd_perf"].tolist() == [13 * 12 / 2, 13 * 4]
    assert summary["compared_with"].max() == 13  # a control with the methods: what judges is the one family


def test_the_interval_of_a_difference_is_that_of_the_paired_scores(shared_findings):
    run, _, pairs = shared_findings
    pair = pairs[(pairs["first"] == "lime") & (pairs["second"] == "lrp") & (pairs["metric"] == "emd_perf")].iloc[0]
    scores = run.scores[run.scores["scored"] & (run.scores["metric"] == "emd_perf")]
    for key in CELL:
        scores = scores[scores[key] == pair[key]]
    wide = scores.astype({"explainer": str}).pivot(index="sample", columns="explainer", values="value")
    difference = (wide["lime"] - wide["lrp"]).dropna()
    assert pair["n_valid"] == len(difference)
    assert pair["difference"] == pytest.approx(difference.mean())
    half = 1.96 * difference.std() / np.sqrt(len(difference))
    assert [pair["low"], pair["high"]] == pytest.approx([difference.mean() - half, difference.mean() + half], abs=0.012)


def test_an_explainer_without_a_defined_score_does_not_hide_the_ranks_of_the_others(fresh_run):
    def change(scores):
        scores.loc[scores["explainer"] == "lrp", "value"] = np.nan

    change_scores(fresh_run, change)
    summary, pairs = inferred(fresh_run)
    lrp = summary["explainer"] == "lrp"
    assert summary.loc[lrp, ["low", "sample_rank", "p_controls", "beats_controls"]].isna().all(axis=None)
    assert (summary.loc[lrp, "compared_with"] == 0).all()
    answers = summary["subset"].eq("rigid") & summary["variant"].eq("white") & summary["explainer"].isin(ANSWERS)
    assert summary.loc[answers, ["sample_rank", "rank", "p_controls", "beats_controls"]].isna().all(axis=None)
    assert summary.loc[~lrp & ~answers & (summary["n_valid"] > 0), "sample_rank"].notna().all()
    assert pairs.loc[pairs["first"] == "lrp", "p_holm"].isna().all()


def test_matrices_hold_every_correct_score_once(fresh_run):
    run = read_run(fresh_run)
    cells = list(cell_matrices(run))
    assert len(cells) == 18
    correct = run.scores[run.scores["scored"]]
    assert sum((~np.isnan(cell.values)).sum() for cell in cells) == correct["value"].notna().sum()
    cell = next(cell for cell in cells if cell.cell == ("mult", "corr", "cnn"))
    mine = correct[(correct["subset"] == "mult") & (correct["variant"] == "corr") & (correct["model"] == "cnn")]
    for metric, method in itertools.product(cell.metrics, ("lime", "sobel")):
        column = cell.values[:, cell.metrics.index(metric), cell.methods.index(method)]
        rows = mine[(mine["metric"] == metric) & (mine["explainer"] == method)].sort_values("sample")
        assert np.array_equal(column, rows["value"].to_numpy(), equal_nan=True)


def test_bundles_hold_whole_groups_evenly_and_the_test_stays_one():
    groups = np.random.default_rng(0).integers(0, 5000, 20000)
    bundles = bundled(groups, limit=200)
    assert all(len(np.unique(bundles[groups == name])) == 1 for name in np.unique(groups)[::50])
    sizes = np.bincount(bundles[np.unique(groups, return_index=True)[1]])
    assert len(sizes) == 200
    assert sizes.max() - sizes.min() <= 1
    # Under the null hypothesis p is uniform, tied into bundles or not.
    differences = np.random.default_rng(1).normal(size=(2000, 300))
    p = nested_means(differences, SamplingDesign.of(2000, groups=bundled(np.arange(2000), limit=100))).p_values()
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


def several(scores):
    """The rows of a training and of a data set more, each with an effect of its own on every method."""
    rng = np.random.default_rng(0)
    parts = []
    for data_seed, seed in itertools.product(range(3), range(2)):
        shift = scores["explainer"].map({name: rng.normal(0, 0.1) for name in scores["explainer"].unique()})
        value = scores["value"] + np.where(scores["explainer"].isin(["sobel", "uniform"]), 0.0, shift)
        parts.append(scores.assign(data_seed=data_seed, seed=seed, value=value))
    return parts


def test_intervals_and_resamples_are_over_what_was_drawn(few_cells_run, tmp_path):
    """With one training they promise the samples alone, with several also that another could have been explained."""
    widths, spread = {}, {}
    chosen = {"samples": [0], "trainings": [0, 1], "data sets": [0, 1, 2, 3, 4, 5]}
    for level, numbers in chosen.items():
        folder = shutil.copytree(few_cells_run, tmp_path / level)
        change_scores(folder, lambda scores, some=numbers: pd.concat([several(scores)[i] for i in some]))
        run = read_run(folder)
        summary, pairs = infer(run, summarize(run))
        cells = list(cell_matrices(run))
        assert {cell.drawn.level for cell in cells} == {level}
        means = resampled_means(cells, 1000)
        saliency = summary[(summary["explainer"] == "saliency") & (summary["metric"] == "emd_perf")]
        widths[level] = (saliency["high"] - saliency["low"]).median()
        for cell in cells:
            k, m = cell.metrics.index("emd_perf"), cell.methods.index("saliency")
            row = saliency[(saliency[CELL] == list(cell.cell)).all(axis=1)].iloc[0]
            first, *drawn = means[cell.cell][:, k, m]
            assert first == pytest.approx(row["mean"])
            low, high = np.quantile(drawn, [0.025, 0.975])
            shorter = min(row["mean"] - row["low"], row["high"] - row["mean"])  # the other side may be longer
            assert (high - low) / (2 * shorter) == pytest.approx(1, abs=0.15)
        spread[level] = (pairs["p"] < 0.05).mean()
    assert 2 * widths["samples"] < min(widths["trainings"], widths["data sets"])
    assert spread["samples"] > max(spread["trainings"], spread["data sets"])
