"""Which accuracies differ from the paper's by more than chance."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.report_tables import quantile
from oracles.report_tables import summarize as literal_summary
from scipy import stats

from xaibench.registry.info import MetricInfo
from xaibench.report import best_methods
from xaibench.runfolder.schema import KEYS
from xaibench.scores.leaderboards import leaderboard
from xaibench.scores.nested_draws import SamplingDesign
from xaibench.scores.results import read_run
from xaibench.scores.summary import (
    MAX_OUTLIERS,
    UnscoredMaps,
    accuracy_margins,
    count_unscored,
    describe,
    infer,
    method_numbers,
    pair_tests,
    rank_means,
    summarize,
    undefined,
    unscored_notes,
)

CONTROLS = {"sobel", "laplace", "uniform", "input"}
#: Where the pattern is the brightest part of the image.
ANSWERS = {("rigid", "white", "input"), ("rigid", "white", "laplace")}


def rewrite(folder, change):
    scores = pd.read_parquet(folder / "scores.parquet")
    changed = change(scores)
    (scores if changed is None else changed).to_parquet(folder / "scores.parquet")
    return read_run(folder)


def assert_equal_to_oracle(run):
    summary = summarize(run)
    raw = pd.read_parquet(run.path / "scores.parquet")
    expected = literal_summary(raw.to_dict("records"), CONTROLS, ANSWERS)
    assert len(summary) == len(expected) > 0
    for row in summary.to_dict("records"):
        want = expected[tuple(row[key] for key in KEYS)]
        for name in ("n", "n_valid", "mean", "std", "min", "q25", "median", "q75", "max", "rank"):
            assert row[name] == pytest.approx(want.get(name, np.nan), nan_ok=True), (name, row)
        above = None if pd.isna(row["above_controls"]) else bool(row["above_controls"])
        assert above == want.get("above_controls")


def test_summary_with_a_lower_is_better_metric_and_ties(fresh_run):
    def change(scores):
        precision = scores["metric"] == "topk_precision"
        scores.loc[precision, "higher_is_better"] = False
        scores.loc[precision, "value"] = scores.loc[precision, "value"].round(0)

    assert_equal_to_oracle(rewrite(fresh_run, change))


def test_controls_that_are_the_answer_need_not_be_beaten(fresh_run):
    def change(scores):
        scores.loc[scores["explainer"] == "input", "value"] = 1.0

    run = rewrite(fresh_run, change)
    summary = summarize(run)
    cells = summary.set_index(["subset", "variant", "explainer"])
    assert cells.loc[("rigid", "white", "input"), "rank"].isna().all()
    assert cells.loc[("rigid", "white", "lime"), "above_controls"].notna().all()
    assert cells.loc[("rigid", "white"), "above_controls"].any(), "the input does not bar the way"
    assert cells.loc[("rigid", "corr", "input"), "rank"].eq(1).all()
    assert not cells.loc[("rigid", "corr"), "above_controls"].any()
    assert run.answers == {("rigid", "white"): frozenset({"input", "laplace"})}
    assert run.answers_text == (
        "Controls that are the answer by construction of the data and are not ranked there: "
        "Input in RIGID WHITE; Laplace in RIGID WHITE."
    )


def test_only_correct_samples_count(fresh_run):
    def change(scores):
        scores.loc[~scores["correct"], "value"] = 1e9

    summary = summarize(rewrite(fresh_run, change))
    assert summary["max"].max() <= 1
    assert (summary["n"] < 12).any()


def test_a_group_without_a_correct_or_defined_score_is_listed(fresh_run):
    def change(scores):
        lrp = scores["explainer"] == "lrp"
        scores.loc[lrp & (scores["model"] == "mlp"), "correct"] = False
        scores.loc[lrp & (scores["model"] == "cnn"), "value"] = np.nan

    run = rewrite(fresh_run, change)
    summary = summarize(run)
    lrp = summary[summary["explainer"] == "lrp"].set_index("model")
    assert (lrp.loc["mlp", "n"] == 0).all()
    assert (lrp.loc["cnn", "n"] > 0).all()
    assert (lrp.loc["cnn", "n_valid"] == 0).all()
    assert lrp.loc[["mlp", "cnn"], ["rank", "above_controls"]].isna().all(axis=None)
    assert lrp.loc["llr", "rank"].notna().all()
    summary, pairs = infer(run, summary)
    board = leaderboard(run, summary, pairs=pairs).set_index("explainer")
    assert pd.isna(board.loc["lrp", "place"])  # a mean over the remaining cells is another quantity
    assert board.loc["deep_shap", "place"] >= 1


@pytest.mark.parametrize("higher", [True, False])
def test_who_is_better_follows_the_direction_of_the_metric(higher):
    values, drawn = np.random.default_rng(0).random((20, 2)) / 10 + [0.0, 0.5], SamplingDesign.of(20)
    metric = MetricInfo("Mine", "map", higher_is_better=higher, range=(0.0, 1.0))
    tests = pair_tests(["low", "high"], values, drawn)
    found = method_numbers(["low", "high"], values, drawn, metric, tests, [False, False])
    counts = {name: (row["better_than"], row["worse_than"]) for name, row in found.items()}
    assert counts == {"high" if higher else "low": (1, 0), "low" if higher else "high": (0, 1)}


def test_leaderboard_counts(fresh_run):
    run = read_run(fresh_run)
    summary, pairs = infer(run, summarize(run))
    board = leaderboard(run, summary, pairs=pairs).set_index("explainer")
    for metric in run.metrics:
        mine = summary[(summary["metric"] == metric) & (summary["explainer"] == "deep_shap")]
        assert board.loc["deep_shap", f"mean_rank:{metric}"] == pytest.approx(mine["rank"].mean())
        assert board.loc["deep_shap", f"mean:{metric}"] == pytest.approx(mine["mean"].mean())
        assert board.loc["deep_shap", f"median:{metric}"] == pytest.approx(mine["median"].median())
        assert board.loc["deep_shap", f"n:{metric}"] == mine["n_valid"].sum()
        assert board.loc["deep_shap", f"beats:{metric}"] == sum(mine["beats_controls"] == True)  # noqa: E712
        assert board.loc["deep_shap", f"above:{metric}"] == sum(mine["above_controls"] == True)  # noqa: E712
        assert board.loc["deep_shap", f"against:{metric}"] == 18
        assert board.loc["sobel", f"against:{metric}"] == 0
        # Somebody is best in each cell; ties may make it more.
        assert board[f"best:{metric}"].sum() >= 18
    assert (board.loc["guided_gradcam", "cells"], board.loc["guided_gradcam", "of"]) == (8, 18)
    assert board.loc[["guided_gradcam", *CONTROLS], "place"].isna().all()
    placed = board[board["place"].notna()]
    assert placed["place"].min() == 1
    assert placed["last_place"].max() == len(placed)
    assert (placed["place"] <= placed["last_place"]).all()
    assert board["mean:emd_perf"].is_monotonic_decreasing


def test_best_methods_names_the_best_of_each_cell(fresh_run):
    def change(scores):
        cell = (scores["subset"] == "xor") & (scores["variant"] == "corr") & (scores["model"] == "cnn")
        scores.loc[cell & (scores["explainer"] == "laplace"), "value"] = 1.25
        scores.loc[~cell & (scores["explainer"] == "lrp"), "value"] = 1.5

    scores = rewrite(fresh_run, change).scores.query("scored and explainer == 'lrp' and metric == 'emd_perf'")
    mean = scores.groupby(["subset", "variant", "model"], observed=True)["value"].mean().mean()
    table = best_methods(fresh_run).set_index(["subset", "variant", "model"])
    assert len(table) == 19
    assert table.loc[("XOR", "CORR", "CNN"), "EMD_perf"] == "Laplace 1.250 (control)"
    assert table.loc[("LIN", "WHITE", "LLR"), "Precision"] == "LRP 1.500"
    assert table.loc[("all", "", ""), "EMD_perf"] == f"LRP {mean:.3f}"


def test_undefined_scores_are_counted_over_correct_samples(fresh_run):
    table = undefined(read_run(fresh_run))
    raw = pd.read_parquet(fresh_run / "scores.parquet")
    correct = raw[raw["correct"]]
    assert set(table["explainer"]) == {"lime", "saliency"}
    for row in table.to_dict("records"):
        mine = correct[(correct["explainer"] == row["explainer"]) & (correct["metric"] == row["metric"])]
        assert (row["undefined"], row["of"]) == (mine["value"].isna().sum(), len(mine))
        assert row["share"] == row["undefined"] / row["of"]
        assert row["reason"] == "the map is zero everywhere"
    assert table["share"].is_monotonic_decreasing


def test_an_undefined_score_without_a_reason_is_counted_too(fresh_run):
    def change(scores):
        scores.loc[scores["explainer"] == "pfi", "value"] = np.nan
        scores.loc[(scores["explainer"] == "pfi") & (scores["model"] == "mlp"), "reason"] = None

    table = undefined(rewrite(fresh_run, change)).set_index("explainer")
    assert (table.loc["pfi", "reason"] == "no reason given").all()
    of = table.loc["pfi"].groupby("metric", observed=True)["undefined"].sum()
    assert (of == table.loc["pfi"].groupby("metric", observed=True)["of"].first()).all()


drawn_scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40)


@given(drawn_scores)
def test_quartiles_and_whiskers_follow_their_definitions(values):
    box = describe(np.array(values))
    ordered = sorted(values)
    assert (box["min"], box["max"], box["n"], box["n_valid"]) == (ordered[0], ordered[-1], len(values), len(values))
    assert [box["q25"], box["median"], box["q75"]] == pytest.approx([quantile(ordered, q) for q in (0.25, 0.5, 0.75)])
    reach = 1.5 * (box["q75"] - box["q25"])
    within = [v for v in ordered if box["q25"] - reach <= v <= box["q75"] + reach]
    assert box["whisker_low"] == min([within[0], box["q25"]])
    assert box["whisker_high"] == max([within[-1], box["q75"]])
    outside = {v for v in ordered if v < box["q25"] - reach or v > box["q75"] + reach}
    assert set(box["outliers"]) <= outside
    if len(outside) <= MAX_OUTLIERS:
        assert set(box["outliers"]) == outside


def test_undefined_values_are_counted_and_left_out():
    box = describe(np.array([np.nan, 0.2, np.nan, 0.4]))
    assert (box["n"], box["n_valid"], box["mean"]) == (4, 2, pytest.approx(0.3))
    assert box["std"] == pytest.approx(np.sqrt(0.02))


def test_few_outliers_are_kept_with_the_extreme_ones():
    values = np.concatenate([np.full(1000, 0.5), np.linspace(0.6, 1.0, 100), np.full(50, 0.1)])
    box = describe(values)
    above = [v for v in box["outliers"] if v > 0.5]
    assert max(above) == 1.0
    assert len(above) == MAX_OUTLIERS
    assert [v for v in box["outliers"] if v < 0.5] == [0.1]  # a value is drawn once, however often it occurs


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, np.nan]), max_size=12))
def test_ranks_of_means_count_the_better_ones(means):
    known = [mean for mean in means if not np.isnan(mean)]
    for mean, rank in zip(means, rank_means(np.array(means)), strict=True):
        if np.isnan(mean):
            assert np.isnan(rank)
        else:
            assert rank == sum(other > mean for other in known) + (known.count(mean) + 1) / 2


def test_a_difference_of_rounding_is_a_tie():
    assert rank_means(np.array([0.1 + 0.2, 0.3])).tolist() == [1.5, 1.5]


def test_the_rank_within_a_cell_is_by_the_mean_and_not_by_the_median(fresh_run):
    """LIME has the largest mean and a median of 0, Saliency the largest median and a mean below 0."""

    def change(scores):
        by_metric = scores["metric"] == "emd_perf"
        for name, values in (("lime", [0.0, 0.0, 30.0]), ("saliency", [2.0, 2.0, -10.0])):
            mine = by_metric & (scores["explainer"] == name)
            scores.loc[mine, "value"] = np.resize(values, mine.sum())
            scores.loc[mine, "correct"] = True

    summary = summarize(rewrite(fresh_run, change))
    mine = summary[summary["metric"] == "emd_perf"].set_index("explainer")
    assert mine.loc["lime", "median"].max() < mine.loc["saliency", "median"].min()
    assert (mine.loc["lime", "rank"] == 1).all()
    assert mine.loc["lime", "above_controls"].all()
    assert not mine.loc["saliency", "above_controls"].any()


CHANCE = "map is all zero: scored as chance"
LABELS = {"a": "A", "b": "B", "c": "C"}


def rows(*known):
    """Rows of the data set d: explainer, sample, metric, value, reason, scored."""
    columns = ["explainer", "sample", "metric", "value", "reason", "scored"]
    return pd.DataFrame(known, columns=columns).assign(dataset="d", model="m", data_seed=0, seed=0)


SCORES = rows(
    ("a", 0, "emd", 0.5, CHANCE, True),
    ("a", 0, "hit", 0.1, CHANCE, True),
    ("a", 0, "deletion", None, "map is constant", True),
    ("a", 1, "emd", 0.7, "", True),
    ("a", 2, "emd", 0.5, CHANCE, False),
    ("b", 0, "emd", 0.9, "", True),
    ("b", 1, "emd", None, "mask is empty", True),
    ("c", 0, "emd", 0.9, "", True),
)


def test_maps_are_counted_once_and_scores_each_where_the_sample_counts():
    found = count_unscored(SCORES)
    assert found == {"a": UnscoredMaps(1, 2, 1, 4), "b": UnscoredMaps(0, 2, 1, 2)}
    assert unscored_notes(found, LABELS) == [
        "Maps scored as chance, because they are constant or no pixel is above the threshold: A 1 of 2.",
        "Undefined scores, which enter no mean: B 1 of 2, A 1 of 4.",
    ]


def test_only_the_methods_with_the_largest_shares_are_named():
    counts = {name: UnscoredMaps(part, 100, 0, 100) for name, part in zip("abcde", (1, 20, 3, 40, 5), strict=True)}
    (note,) = unscored_notes(counts, {name: name.upper() for name in "abcde"})
    assert note.endswith(": D 40 of 100, B 20 of 100, E 5 of 100 and at most 3 % of 2 others.")


def test_without_any_there_is_no_sentence():
    assert unscored_notes(count_unscored(SCORES[SCORES["explainer"] == "c"]), LABELS) == []
    assert count_unscored(SCORES.iloc[:0]) == {}


def test_equal_counts_of_every_method_are_one_number():
    empty = rows(
        *[(name, number, "emd", [None, 0.5][number], ["x", ""][number], True) for name in "abc" for number in (0, 1)]
    )
    assert unscored_notes(count_unscored(empty), LABELS) == [
        "Undefined scores, which enter no mean: 1 of 2 of every method."
    ]


#: Eight trainings of one cell, two of which failed; their mean is the 86.3 % that eight once had.
EIGHT = [49.6, 97.6, 97.2, 96.5, 97.4, 97.0, 97.5, 57.6]


def run_of(cells, test_samples=1000, paper=86.4):
    """``cells``: (subset, model) to its test accuracies."""
    places = [{"subset": subset, "variant": "corr", "model": model} for subset, model in cells]
    accuracy = [
        place | {"trainings": len(tests), "mean": np.mean(tests), "paper": paper, "test_samples": test_samples}
        for place, tests in zip(places, cells.values(), strict=True)
    ]
    trainings = [
        place | {"test_accuracy": test} for place, tests in zip(places, cells.values(), strict=True) for test in tests
    ]
    tables = {"accuracy": pd.DataFrame(accuracy), "trainings": pd.DataFrame(trainings)}
    return SimpleNamespace(**tables, accuracy_keys=("subset", "variant", "model"))


def test_one_cell_goes_by_its_own_trainings_and_by_the_test_samples():
    tests = [90.0, 92.0, 94.0]
    (margin,) = accuracy_margins(run_of({("lin", "mlp"): tests})).values()
    binomial = (92 * 8 + 86.4 * 13.6) / 1000
    expected = stats.t.ppf(0.975, 2) * math.sqrt(2 * np.var(tests, ddof=1) / 3 + binomial)
    assert margin == pytest.approx(expected, rel=1e-12)


def test_three_alike_of_a_network_that_varies_elsewhere_are_not_made_sure_of():
    # Three trainings gave 97.1 on average, the paper has 86.4; eight gave 49.6 to 97.6.
    few = run_of({("lin", "cnn"): [97.6, 96.5, 97.2], ("mult", "cnn"): [95.0, 81.0, 98.0]})
    assert accuracy_margins(few)["lin", "corr", "cnn"] > 97.1 - 86.4
    assert accuracy_margins(run_of({("lin", "cnn"): EIGHT}))["lin", "corr", "cnn"] > abs(np.mean(EIGHT) - 86.4)
    # What never varies is told apart.
    sure = run_of({("lin", "llr"): [99.9, 100.0, 99.9], ("mult", "cnn"): [95.0, 81.0, 98.0]}, paper=86.4)
    assert accuracy_margins(sure)["lin", "corr", "llr"] < 5


def test_what_may_have_failed_in_the_paper_counts_where_ours_is_better():
    cells = {
        ("lin", "cnn"): [97.9, 96.3, 95.2, 99.4, 95.1, 95.3],
        ("rigid", "cnn"): [91.5, 88.0, 76.2, 87.0, 86.0, 89.0],
    }

    def margin(learned, paper=86.4):
        run = run_of(cells, paper=paper)
        run.accuracy["learned"] = learned
        return accuracy_margins(run)["lin", "corr", "cnn"]

    none_of_six = 1 - 0.025 ** (1 / 6)  # Clopper-Pearson's upper end
    assert margin([6, 5]) == pytest.approx(margin([6, 6]) + none_of_six * (np.mean(cells["lin", "cnn"]) - 50))
    assert margin([6, 5]) > np.mean(cells["lin", "cnn"]) - 86.4 > margin([6, 6])
    assert margin([6, 5], paper=99.9) == margin([6, 6], paper=99.9)  # failures do not make it better


def test_one_training_tells_no_spread():
    assert math.isnan(accuracy_margins(run_of({("lin", "mlp"): [90.0]}))["lin", "corr", "mlp"])


def test_under_no_difference_few_are_marked():
    rng = np.random.default_rng(0)
    marked = []
    for _ in range(300):
        tests = rng.normal(90, 2, (4, 3)) + rng.normal(0, 0.95, (4, 1))
        paper = rng.normal(90, 2 / math.sqrt(3)) + rng.normal(0, 0.95)
        found = accuracy_margins(run_of({(f"s{i}", "mlp"): row for i, row in enumerate(tests)}, paper=paper))
        marked.append(abs(tests[0].mean() - paper) > found["s0", "corr", "mlp"])
    assert 0.01 < np.mean(marked) < 0.08
