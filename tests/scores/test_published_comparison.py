import pandas as pd
import pytest

from xaibench.benchmarks.saliency_bench.published_tables import TABLE_3_METRICS
from xaibench.scores import published_comparison as published
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize


def test_ours_stand_beside_theirs(annotated_run, annotated_findings):
    run, summary, _ = annotated_findings
    rows = published.scores(run, summary)
    raw = pd.read_parquet(annotated_run / "scores.parquet")
    assert [(row["set"], row["explainer"]) for row in rows[:2]] == [("Scene", "cam"), ("Scene", "gradcam")]
    assert len(rows) == 2 * 8
    assert [part.name for part in published.shown_metrics(run)] == list(TABLE_3_METRICS)
    row = next(row for row in rows if (row["set"], row["explainer"]) == ("Cat and Dog", "rise"))
    assert row["same_network"]
    mine = raw[
        (raw["dataset"] == "pet") & (raw["explainer"] == "rise") & (raw["metric"] == "deletion") & raw["correct"]
    ]
    cell = row["cells"][5]
    assert cell["ours"] == pytest.approx(mine["value"].mean())
    assert cell["theirs"] == 0.236
    assert cell["difference"] == pytest.approx(cell["ours"] - 0.236)
    assert cell["low"] < cell["ours"] < cell["high"]
    rows = published.accuracies(run)
    assert [(row["set"], row["same_network"]) for row in rows] == [("Cat and Dog", True), ("Scene", True)]
    cells = pd.DataFrame(rows[1]["cells"])
    assert cells["theirs"].tolist() == [94.4, 94.41, 94.38, 94.39]
    assert cells["ours"].tolist()[:3] == [95.0, 96.0, 90.0]
    assert cells["difference"].tolist()[:3] == pytest.approx([0.6, 1.59, -4.38])
    assert cells[["ours", "difference"]].iloc[3].isna().all()  # a folder of an older version knows accuracy only


def test_another_network_is_told_apart_and_other_sets_are_left_out(fresh_annotated_run):
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores = scores.assign(model="vgg16").replace({"scene": "lidc"})
    scores[scores["metric"] != "hit"].to_parquet(fresh_annotated_run / "scores.parquet")
    run = read_run(fresh_annotated_run)
    rows = published.scores(run, infer(run, summarize(run))[0])
    assert {row["set"] for row in rows} == {"Cat and Dog"}
    assert not any(row["same_network"] for row in rows)
    assert [len(row["cells"]) for row in rows] == [5] * 8


def test_a_run_of_other_sets_has_nothing_beside(shared_findings):
    run, summary, _ = shared_findings
    assert published.scores(run, summary) == []
    assert published.accuracies(run) == []


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (
            '[explaining]\nprotocol = "scaled"',
            "smallest to largest value, and cut above 0.5.",
        ),
        ('[explaining]\nprotocol = "published"', "published functions: above 0, for recall above 0.5."),
        ("[explaining]", "as many of the largest pixels are marked as the mask has."),
        ("[explaining]\n[metrics]\niou = { threshold = 0.25 }\nhit = {}", "another threshold for: IoU above 0.25."),
        ("explaining = 3", ""),
        ("not toml [", ""),
    ],
)
def test_the_rule_of_the_thresholds_is_said(fresh_annotated_run, toml, said):
    (fresh_annotated_run / "suite.toml").write_text(toml)
    found = published.thresholding(read_run(fresh_annotated_run))
    assert found.endswith(said)
    assert bool(found) == bool(said)
