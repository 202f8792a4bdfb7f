"""Sentences at the top of the page, for scores whose order and significance are known."""

import re

import numpy as np
import pytest
from report.known_scores import NOISE, make_board

from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import best_by_cell, boards, leaderboards_by_truth
from xaibench.report.numbers.summary import summarize
from xaibench.report.page.headlines import unranked, verdict


def without_interval(sentence):
    """The sentence without the interval of the first mean."""
    return re.sub(r"(, [\d.]+) \[[\d.]+, [\d.]+\]", r"\1", sentence, count=1)


def test_a_method_that_is_significantly_better_than_all_others(tmp_path):
    run, found = make_board(tmp_path, {"a": 0.9, "b": 0.7, "c": 0.6, "sobel": 0.1}, {"b": NOISE})
    (sentence,) = verdict(run, found)
    half = 0.01 * np.sqrt(20 / 19) / np.sqrt(20) * 2.093  # Student's t with 19 degrees of freedom
    assert sentence.startswith("By k, a has the best mean, 0.900")
    ends = f"[{0.2 - half:.3f}, {0.2 + half:.3f}]"
    assert sentence.endswith(f", significantly better than the next method, b, by 0.200 {ends}.")


def test_methods_that_share_the_first_place_and_the_next_one(tmp_path):
    means = {"a": 0.61, "b": 0.6, "c": 0.3, "d": 0.1, "sobel": 0.2}
    run, found = make_board(tmp_path, means, {"b": 10 * NOISE})
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == (
        "By k, a has the best mean, 0.610, but is not significantly better than b; "
        "1 of 4 methods is not significantly better than the controls."
    )


def test_the_best_method_may_be_the_one_with_the_lowest_mean(tmp_path):
    run, found = make_board(tmp_path, {"a": 0.9, "b": 0.5, "sobel": 0.95}, higher_is_better=False)
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == (
        "By k, b has the best mean, 0.500, significantly better than the next method, a, by 0.400 [0.400, 0.400]."
    )


def test_many_methods_that_share_the_first_place_are_counted(tmp_path):
    means = {"a": 0.61, "b": 0.6, "c": 0.6, "d": 0.6, "sobel": 0.2}
    run, found = make_board(tmp_path, means, dict.fromkeys("bcd", 10 * NOISE))
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == (
        "By k, a has the best mean, 0.610, but is not significantly better than 3 other methods."
    )


def test_a_single_ranked_method_is_not_called_better_than_others_that_were_not_ranked(tmp_path):
    # The best mean is b's, which varies so much that it is not significantly better than the control.
    run, found = make_board(tmp_path, {"a": 0.5, "b": 0.51, "sobel": 0.4}, {"b": 60 * NOISE})
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == (
        "By k, a is the only ranked method, 0.500; 1 of 2 methods is not significantly better than the controls."
    )


def test_no_method_that_is_better_than_the_controls(tmp_path):
    run, found = make_board(tmp_path, {"a": 0.3, "b": 0.2, "sobel": 0.4})
    assert verdict(run, found) == ["By k, no method is significantly better than the controls."]


def test_a_difference_whose_interval_includes_zero_is_not_stated(tmp_path):
    """The next method is significantly worse than the second one, but not than the first one, whose scores vary."""
    run, found = make_board(tmp_path, {"a": 0.61, "b": 0.6, "c": 0.59, "sobel": 0.1}, {"a": 20 * NOISE})
    (sentence,) = verdict(run, found)
    assert without_interval(sentence) == "By k, a has the best mean, 0.610, but is not significantly better than b."


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


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_without_integrated_gradients_it_is_compared_with_the_best_method(tmp_path, higher_is_better):
    means = {"mine": 0.701, "a": 0.6, "b": 0.7, "sobel": 0.1 if higher_is_better else 0.9}
    run, found = make_board(tmp_path, means, {"mine": 10 * NOISE}, higher_is_better=higher_is_better, own=["mine"])
    (sentence,) = verdict(run, found)
    expected = "not significantly better than b" if higher_is_better else "significantly worse than a"
    assert f"mine (yours) is {expected}: difference " in sentence


def test_a_method_that_is_not_better_than_the_controls_is_named_and_never_first(tmp_path):
    means = {"a": 0.61, "b": 0.6, "sobel": 0.6}
    run, found = make_board(tmp_path, means, {"a": 10 * NOISE, "b": 0.01 * NOISE})
    assert unranked(run, found) == ["No place, because not significantly better than the controls: a, b."]
    summary, pairs = infer(run, summarize(run))
    best = best_by_cell(run, summary, leaderboards_by_truth(run, summary, pairs))
    assert best["k"].tolist() == ["a 0.610", "-"]
