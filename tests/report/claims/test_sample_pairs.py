"""Statements about samples in two forms, on a small run of the watermark suite."""

import numpy as np
import pytest

from xaibench.benchmarks.watermarks.claims import CLAIMS, NETWORK
from xaibench.report.claims.paper_claims import claims
from xaibench.report.claims.sample_pairs import check_pairs, paired_scores
from xaibench.report.read.results import read_run
from xaibench.runner import run


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    run("watermarks", quick=True, explainers=["integrated_gradients", "sobel"], out=out, device="cpu")
    return read_run(out)


def test_scores_are_in_pairs_of_the_same_image(results):
    scores = paired_scores(results, CLAIMS, "relative_importance")
    assert set(scores) == {("confounder", "bright", NETWORK), ("none", "bright", NETWORK)}
    for (regime, _, _), methods in scores.items():
        rows = results.scores[
            (results.scores["metric"] == "relative_importance") & (results.scores["subset"] == regime)
        ]
        rows = rows[rows["model"] == NETWORK]
        for name, values in methods.items():
            mine = rows[rows["explainer"] == name].sort_values("sample")["value"].to_numpy()
            assert np.array_equal(values[0], mine.reshape(-1, 2))  # sample 2i is the watermarked one of pair i


def test_claims_have_an_interval_around_their_value(results):
    found = check_pairs(results, CLAIMS, 50, 0)
    assert [claim.statement.split()[0] for claim in found] == ["Watermarks", "Importance", "Edge"]
    assert all(claim.low <= claim.value <= claim.high for claim in found)
    assert {claim.statement for claim in found} <= {claim.statement for claim in claims(results, resamples=50)}
    assert found == check_pairs(results, CLAIMS, 50, 0)
