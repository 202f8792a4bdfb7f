"""A score and its skill in one run: methods are ranked by the skill, and the score is shown next to it."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from xaibench.report import best_methods, ranked_methods, write_report
from xaibench.scores.leaderboards import leaderboard
from xaibench.scores.metric_agreement import agreements
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize

SKILLS = {"emd_skill": "emd_perf", "precision_skill": "topk_precision"}


@pytest.fixture
def skilled(small_run):
    """A run whose skills order the methods the other way round, to tell which order is shown."""
    scores = pd.read_parquet(small_run / "scores.parquet")
    added = [
        scores[scores["metric"] == raw].assign(metric=skill, value=lambda rows: 0.5 - rows["value"])
        for skill, raw in SKILLS.items()
    ]
    pd.concat([scores, *added], ignore_index=True).to_parquet(small_run / "scores.parquet")
    parts = json.loads((small_run / "descriptions.json").read_text())
    for skill, raw in SKILLS.items():
        label = parts["metrics"][raw]["label"]
        words = {"label": f"Skill of {label}", "meaning": "Against chance.", "skill_of": raw, "range": [None, 1.0]}
        parts["metrics"][skill] = words
    (small_run / "descriptions.json").write_text(json.dumps(parts))
    return small_run


def test_methods_are_ranked_by_the_skills_alone(skilled):
    run = read_run(skilled)
    assert run.leading == tuple(SKILLS)
    assert run.raw == SKILLS
    board = leaderboard(run, summarize(run))
    assert board["mean:emd_skill"].is_monotonic_decreasing
    assert board["mean:emd_perf"].is_monotonic_increasing
    assert list(best_methods(skilled).columns[3:]) == ["Skill of EMD_perf", "Skill of Precision"]
    assert list(ranked_methods(skilled)[""].columns[2:4]) == ["Skill of EMD_perf", "Skill of Precision"]


def test_where_something_has_the_score_alone_all_are_ranked_by_that(skilled):
    # As published scores of before the skills have it.
    scores = pd.read_parquet(skilled / "scores.parquet")
    kept = ~((scores["metric"] == "emd_skill") & (scores["explainer"] == "lrp"))
    scores[kept].to_parquet(skilled / "scores.parquet")
    run = read_run(skilled)
    assert run.leading == ("emd_perf", "precision_skill")
    assert run.raw == {"precision_skill": "topk_precision"}
    summary, pairs = infer(run, summarize(run))
    board = leaderboard(run, summary, pairs=pairs)
    assert board["mean:emd_perf"].is_monotonic_decreasing
    assert board.set_index("explainer").loc["lrp", "place"] > 0


def test_the_page_shows_the_score_beside_the_skill_and_explains_both(skilled):
    page = write_report(skilled).read_text(encoding="utf-8")
    run = read_run(skilled)
    table = re.search(r'<table class="board.*?</table>', page, re.S).group()
    names = list(run.metrics)
    assert "EMD_perf, median" in table
    board = leaderboard(run, summarize(run)).set_index("explainer")
    row = re.search(r'<tr data-e="lrp".*?</tr>', table, re.S).group()
    for skill, raw in SKILLS.items():
        shown = re.search(rf'data-k="median" data-m="{names.index(skill)}" data-v="([^"]*)"', row)[1]
        assert float(shown) == pytest.approx(board.loc["lrp", f"median:{raw}"])
        hidden = f'#board:not(.one) [data-m="{names.index(raw)}"] {{ display: none !important; }}'
        assert hidden in page
        assert f'[data-m="{names.index(skill)}"] {{ display' not in page
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.S)[1])
    assert [metric.get("raw") for metric in data["metrics"]] == [None, None, 0, 1]
    guide = re.search(r'<section aria-labelledby="methods">.*?</section>', page, re.S).group()
    assert "<strong>Skills.</strong>" in guide
    assert "0 is chance, 1 is perfect, and negative values are worse than noise" in guide
    assert agreements(run) == {}  # two scores, and the same again


def test_intervals_end_where_skills_do(skilled):
    scores = pd.read_parquet(skilled / "scores.parquet")
    best = scores["metric"].eq("emd_skill") & scores["explainer"].eq("lrp")
    values = np.where(scores["sample"] % 7 == 0, 0.2, 1.0)
    scores.assign(value=scores["value"].mask(best & scores["value"].notna(), values)).to_parquet(
        skilled / "scores.parquet"
    )
    write_report(skilled)
    summary = pd.read_csv(skilled / "summary.csv")
    chosen = summary[(summary["metric"] == "emd_skill") & (summary["explainer"] == "lrp")]
    assert (chosen["mean"] < 1).all()
    assert (chosen["high"] <= 1).all()
