"""A metric that failed its trials is marked where its scores are shown, and one that passed is not."""

import json

import pandas as pd
import pytest

from xaibench.report.metric_verdicts import MetricVerdict, known_verdicts
from xaibench.report.results import read_run


def of_truth(folder, truth):
    """The run, as if its masks were of that truth."""
    pd.read_parquet(folder / "scores.parquet").assign(truth=truth).to_parquet(folder / "scores.parquet")
    return read_run(folder)


def test_what_fails_with_one_truth_is_marked_there_alone(small_run):
    assert known_verdicts()["emd_perf"]["use"].verdict == "fails"
    assert known_verdicts()["emd_perf"]["data"].verdict == "passes"
    assert "emd_perf" not in of_truth(small_run, "data").cautions
    said = of_truth(small_run, "use").cautions["emd_perf"]
    assert said.startswith(
        "On networks of which it is certain what they use it put a worse map before a better one in "
    )


def test_of_what_was_not_tried_nothing_is_said(small_run):
    assert of_truth(small_run, "").cautions == {}
    parts = json.loads((small_run / "parts.json").read_text())
    parts["metrics"]["emd_perf"]["own"] = True  # the user's, under a name that we have, too
    (small_run / "parts.json").write_text(json.dumps(parts))
    assert "emd_perf" not in of_truth(small_run, "use").cautions


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (MetricVerdict("passes", {"moved": 1.0, "noisy": 0.96}, {"moved": 0.0, "noisy": 0.04}), ""),
        (
            MetricVerdict("coarse", {"moved": 1.0, "noisy": 0.25}, {"moved": 0.0, "noisy": 0.01}),
            "On outlines and boxes it gave two maps of which one is worse the same score in 75 % of the draws where "
            "noise is mixed in.",
        ),
        (
            MetricVerdict("fails", {"moved": 0.5, "noisy": 0.25}, {"moved": 0.5, "noisy": 0.7}),
            "On outlines and boxes it put a worse map before a better one in 50 % of the draws where values are moved "
            "off the ground truth and in 70 % of the draws where noise is mixed in.",
        ),
    ],
)
def test_the_sentence_says_what_went_wrong(verdict, said):
    assert verdict.caution("human") == said
