"""Sentences at the top of the page, for scores whose order and significance are known."""

import re

import numpy as np
import pandas as pd
import pytest
from report.known_scores import NOISE, make_board

from xaibench.report.page.content import own_comparisons, unranked, verdict
from xaibench.report.page.write import make_report
from xaibench.scores.leaderboards import best_by_cell, boards, leaderboards_by_truth, overall_comparisons
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize


def without_interval(sentence):
    """The sentence without the interval of the first mean."""
    return re.sub(r"(, [\d.]+) \[[\d.]+, [\d.]+\]", r"\1", sentence, count=1)


HALF = 0.01 * np.sqrt(20 / 19) / np.sqrt(20) * 2.093  # Student's t with 19 degrees of freedom


def of(methods, better, worse):
    """Return the end of the sentence of a single cell, which counts the methods above and below the controls."""
    first, second = ("is" if count in ("none", "1") else "are" for count in (better, worse))
    start = f"{better} of {methods} methods {first} significantly better than every control"
    return f"{start}; {worse} {second} significantly worse than one."


@pytest.mark.parametrize(
    ("means", "noise", "expected"),
    [
        (
            {"a": 0.9, "b": 0.7, "c": 0.6, "sobel": 0.1},
            {"b": NOISE},
            "By k, a has the best mean, 0.900, significantly better than the next ranked method, b, by 0.200 "
            f"[{0.2 - HALF:.3f}, {0.2 + HALF:.3f}]; {of(3, '3', 'none')}",
        ),
        (
            {"a": 0.61, "b": 0.6, "c": 0.3, "d": 0.1, "sobel": 0.2},
            {"b": 10 * NOISE},
            "By k, a has the best mean, 0.610, but is not significantly better than b; " + of(4, "3", "1"),
        ),
        (
            {"a": 0.61, "b": 0.6, "c": 0.6, "d": 0.6, "sobel": 0.2},
            dict.fromkeys("bcd", 10 * NOISE),
            "By k, a has the best mean, 0.610, but is not significantly better than 3 other methods; "
            + of(4, "4", "none"),
        ),
        (  # the best mean is b's, which varies so much that it is not significantly better than the control
            {"a": 0.5, "b": 0.51, "sobel": 0.4},
            {"b": 60 * NOISE},
            "By k, a is the only ranked method (places 1–2), 0.500; " + of(2, "1", "none"),
        ),
        ({"a": 0.3, "b": 0.2, "sobel": 0.4}, {}, "By k, no method has a place; " + of(2, "none", "2")),
        (  # the next method is significantly worse than the second one, but not than the first one
            {"a": 0.61, "b": 0.6, "c": 0.59, "sobel": 0.1},
            {"a": 20 * NOISE},
            "By k, a has the best mean (places 1–3), 0.610, but is not significantly better than b; "
            + of(3, "3", "none"),
        ),
    ],
)
def test_the_best_method_and_how_far_that_is_significant(tmp_path, means, noise, expected):
    run, found = make_board(tmp_path, means, noise)
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == expected


def test_the_best_method_may_be_the_one_with_the_lowest_mean(tmp_path):
    run, found = make_board(tmp_path, {"a": 0.9, "b": 0.5, "sobel": 0.95}, higher_is_better=False)
    (sentence,) = verdict(run, found)
    assert without_interval(sentence).startswith("By k, b has the best mean, 0.500, significantly better than")


@pytest.mark.parametrize("control", [True, False])
def test_without_inference_there_is_nothing_to_state(tmp_path, control):
    run, _ = make_board(tmp_path, {"a": 0.3, "b": 0.2} | ({"sobel": 0.1} if control else {}))
    summary, _ = infer(run, summarize(run))
    assert verdict(run, boards(run, summary)) == []


def test_the_users_own_method_is_compared_with_integrated_gradients(tmp_path):
    means = {"mine": 0.72, "a": 0.9, "integrated_gradients": 0.7, "sobel": 0.1}
    run, found = make_board(tmp_path, means, {"mine": NOISE}, own=["mine"])
    (sentence,) = verdict(run, found)
    half = 0.01 * np.sqrt(20 / 19) / np.sqrt(20) * 2.093
    ends = f"[{0.02 - half:.3f}, {0.02 + half:.3f}]"
    assert sentence.endswith(
        f" mine (yours) is significantly better than integrated_gradients: difference 0.020 {ends}."
    )


def test_the_users_own_method_is_compared_with_every_other_in_one_sentence(tmp_path):
    means = {"mine": 0.72, "a": 0.9, "b": 0.721, "c": 0.5, "sobel": 0.1}
    run, found = make_board(tmp_path, means, {"b": 10 * NOISE}, own=["mine"])
    overall = overall_comparisons(found)
    assert own_comparisons(run, found, overall) == [
        "By k over all cells that both have, mine (yours) is significantly better than c, sobel; "
        "significantly worse than a; not significantly different from b."
    ]
    make_report(tmp_path)
    pairs = pd.read_csv(tmp_path / "comparisons.csv").query("subset == 'all'")
    assert set(zip(pairs["first"], pairs["second"], strict=True)) == set(
        zip(overall["first"], overall["second"], strict=True)
    )


def test_what_holds_by_all_metrics_is_stated_and_contradictions_are_named(tmp_path):
    make_board(tmp_path, {"mine": 0.7, "a": 0.6, "b": 0.5, "c": 0.8, "sobel": 0.1}, own=["mine"])
    by_k = pd.read_parquet(tmp_path / "scores.parquet")
    other = by_k.assign(metric="l", value=by_k["value"] + by_k["explainer"].map({"a": 0.3}).fillna(0))
    pd.concat([by_k, other]).to_parquet(tmp_path / "scores.parquet")
    run = read_run(tmp_path)
    found = boards(run, *infer(run, summarize(run)))
    first, second, last = own_comparisons(run, found, overall_comparisons(found))
    assert first.endswith("mine (yours) is significantly better than a, b, sobel; significantly worse than c.")
    assert second.endswith("mine (yours) is significantly better than b, sobel; significantly worse than a, c.")
    assert last == (
        "By all 2 metrics, mine (yours) is significantly better than b, sobel; the metrics contradict each other for "
        "a: report all of them."
    )


def make_cells(folder, cells, controls):
    """Write a run of several cells, cell to mean scores, and return it with its leaderboards."""
    parts = []
    for (subset, variant), means in cells.items():
        make_board(folder, means, controls=controls)
        scores = pd.read_parquet(folder / "scores.parquet")
        parts.append(scores.assign(subset=subset, variant=variant, dataset=f"{subset}-{variant}"))
    pd.concat(parts).to_parquet(folder / "scores.parquet")
    run = read_run(folder)
    return run, boards(run, *infer(run, summarize(run)))


def test_a_method_that_is_first_below_a_control_has_no_place(tmp_path):
    cells = {("d", "-"): {"a": 0.9, "b": 0.2, "sobel": 0.8}, ("e", "-"): {"a": 0.3, "b": 0.1, "sobel": 0.6}}
    run, found = make_cells(tmp_path, cells, ["sobel"])
    assert verdict(run, found) == [
        "By k, no method has a place; over all cells, none of 2 methods is significantly better than every control, "
        "1 more in at least one cell, 1 in none; 2 are significantly worse than one."
    ]
    assert unranked(run, found) == [
        "No place, because in no cell significantly better than every control: b.",
        "No place, because significantly worse than a control over its cells: a.",
    ]


def test_comparisons_over_all_cells_leave_out_those_in_which_a_control_is_the_answer(tmp_path):
    means = {"a": 0.4, "b": 0.3, "laplace": 1.0}, {"a": 0.6, "b": 0.4, "laplace": 0.5}
    _, found = make_cells(tmp_path, dict(zip([("rigid", "white"), ("rigid", "corr")], means, strict=True)), ["laplace"])
    rows = overall_comparisons(found).set_index(["first", "second"])["difference"]
    assert rows["a", "b"] == pytest.approx(0.15)
    assert rows["a", "laplace"] == pytest.approx(0.1)


def test_a_method_that_is_not_better_than_the_controls_is_named_and_never_first(tmp_path):
    means = {"a": 0.61, "b": 0.6, "sobel": 0.6}
    run, found = make_board(tmp_path, means, {"a": 10 * NOISE, "b": 0.01 * NOISE})
    assert unranked(run, found) == ["No place, because in no cell significantly better than every control: a, b."]
    summary, pairs = infer(run, summarize(run))
    best = best_by_cell(run, summary, leaderboards_by_truth(run, summary, pairs))
    assert best["k"].tolist() == ["a 0.610", "-"]
