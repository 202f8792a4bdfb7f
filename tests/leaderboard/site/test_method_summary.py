"""Sentences on a method's page, for scores whose order and significance are known."""

import pytest
from report.known_scores import NOISE, make_board

from xaibench.leaderboard.site.method_page import summarize_methods
from xaibench.scores.summary import infer, summarize


def summaries(tmp_path, means, noise=None, **options):
    run, found = make_board(tmp_path, means, noise or {}, **options)
    return summarize_methods(run, infer(run, summarize(run))[0], found)


def test_a_method_that_beats_the_controls_is_good_for_that_cell(tmp_path):
    found = summaries(tmp_path, {"a": 0.9, "b": 0.7, "c": 0.699, "sobel": 0.1}, {"c": 20 * NOISE})
    assert list(found) == ["a", "b", "c"]
    (summary,) = found["a"]
    assert summary.metric == "k"
    assert summary.good == "Significantly better than every control in 1 of 1 cell: d."
    assert summary.bad == "None of 1 cell."
    assert summary.standing == (
        "Of the 2 other methods with scores in all cells, 0 are significantly better and 2 are significantly worse "
        "over all cells; 0 do not differ significantly."
    )
    assert found["b"][0].standing.endswith(
        "1 is significantly better and 0 are significantly worse over all cells; 1 do not differ significantly."
    )


@pytest.mark.parametrize(
    ("mean", "noise", "bad"),
    [
        (0.3, 0, "Not better than the best control in 1: d."),
        (0.41, 60, "Better, but not significantly, in 1: d."),
    ],
)
def test_a_method_that_does_not_beat_the_controls_is_not_shown_to_be_good(tmp_path, mean, noise, bad):
    (summary,) = summaries(tmp_path, {"a": mean, "b": 0.9, "sobel": 0.4}, {"a": noise * NOISE})["a"]
    assert summary.good == "Not significantly better than every control in any of 1 cell."
    assert summary.bad == bad
    assert summary.standing.startswith(
        "Without a place, because it is in no cell significantly better than every control"
    )


def test_without_controls_nothing_is_claimed(tmp_path):
    (summary,) = summaries(tmp_path, {"a": 0.3, "b": 0.9})["a"]
    assert (summary.good, summary.bad) == ("", "There is no control to compare with.")
