"""Statements about both image sizes, tested on two runs."""

from dataclasses import replace

import pytest

from xaibench.report.claims.across_sizes import across_sizes
from xaibench.report.read.results import read_run


def test_two_runs_are_compared_by_their_skills(shared_run):
    run = read_run(shared_run)
    assert across_sizes(run, run, resamples=50) == []  # it has no skills

    scores = run.scores.assign(metric=run.scores["metric"].cat.rename_categories({"emd_perf": "emd_skill"}))
    metrics = {"emd_skill": replace(run.metrics["emd_perf"], name="emd_skill", skill_of="emd_perf")}
    skilled = replace(run, scores=scores[scores["metric"] == "emd_skill"], metrics=metrics)
    found = across_sizes(skilled, skilled, resamples=50)

    assert {claim.metric for claim in found} == {"emd_skill"}
    by_words = {claim.statement.split()[0]: claim for claim in found}
    assert by_words["LIME"].value == pytest.approx(0)
    assert by_words["LIME"].verdict == "undecided"
    assert by_words["Trends"].value == 1
    assert by_words["Trends"].low < 1
