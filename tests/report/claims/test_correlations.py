"""Correlations of metrics over samples, compared with SciPy's."""

import numpy as np
import pytest
from scipy.stats import pointbiserialr, spearmanr

from xaibench.benchmarks.saliency_bench.claims import CORRELATIONS
from xaibench.report.claims.correlations import check_correlations
from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.results import read_run


def test_correlations_are_those_of_scipy(annotated_run):
    run = read_run(annotated_run)
    claims = check_correlations(run, list(cell_matrices(run)), CORRELATIONS, 50, 0)
    found = {(claim.statement, claim.metric): claim for claim in claims}
    signs = {name: 1.0 if part.higher_is_better else -1.0 for name, part in run.metrics.items()}
    for words, pair, method in (
        ("The pointing game and IoU agree (", ("hit", "iou"), "gradcam"),
        ("Explanations that are good by insertion", ("insertion", "deletion"), "gradcam"),
    ):
        claims = [
            one
            for (statement, _), one in found.items()
            if statement.startswith(words) and run.explainers[method].label in statement
        ]
        expected = []
        for cell in cell_matrices(run):
            if set(pair) <= set(cell.metrics) and method in cell.methods:
                x, y = (
                    signs[name] * cell.values[:, cell.metrics.index(name), cell.methods.index(method)] for name in pair
                )
                known = ~np.isnan(x + y)
                r = (pointbiserialr if "hit" in pair else spearmanr)(x[known], y[known]).statistic
                expected.append(r)
        expected = [each for each in expected if np.isfinite(each)]
        assert [one.value for one in claims] == ([pytest.approx(np.mean(expected))] if expected else [])
        assert all(one.low <= one.value <= one.high for one in claims)
    assert found
