"""The Saliency-Bench statements, on handwritten means, and correlations compared with SciPy's."""

import numpy as np
import pytest
from scipy.stats import pointbiserialr, spearmanr

from xaibench.report.claims.claim import Cells
from xaibench.report.claims.saliency_bench_statements import STATEMENTS, correlations
from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.results import read_run

PET = ("pet", "", "resnet18")


def number(words, means, others=None):
    (stated,) = (each for each in STATEMENTS if words in each.statement)
    arrays = {name: np.array([value]) for name, value in means.items()}
    beside = {metric: {PET: {k: np.array([v]) for k, v in row.items()}} for metric, row in (others or {}).items()}
    compared = list(stated.compare(Cells({PET: arrays}, tuple(means), (), beside)))
    return float(np.mean(compared)) if compared else None


def test_the_numbers_are_those_by_hand():
    means = {"cam": 0.5, "gradcam": 0.6, "saliency": 0.3, "rise": 0.55, "lime": 0.99}
    assert number("RISE outperforms", means) == pytest.approx(2 / 3)  # LIME is none of the paper's
    assert number("In the pointing game", means) == pytest.approx(3 / 4)
    assert number("Grad-CAM++ are alike", means) == pytest.approx(0.1 / 0.3)
    low = {"precision": {"cam": 0.4, "gradcam": 0.2, "rise": 0.45}}
    assert number("low precision", means, low) == pytest.approx(np.mean([0.1, 0.4, 0.1]))
    assert number("low precision", means) is None


def test_correlations_are_those_of_scipy(annotated_run):
    run = read_run(annotated_run)
    found = {(claim.statement, claim.metric): claim for claim in correlations(run, list(cell_matrices(run)), 50, 0)}
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
