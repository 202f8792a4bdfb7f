"""Each statement holds in the printed table that it is about, and on means that are written down by hand."""

import numpy as np
import pytest

from xaibench.benchmarks.claims import Cells
from xaibench.benchmarks.pattern_gam.claims import CLAIMS, GLOBAL, STATEMENTS
from xaibench.benchmarks.pattern_gam.published_table import METHODS, METRICS, TABLE


def number(stated, means):
    arrays = {cell: {name: np.array([value]) for name, value in row.items()} for cell, row in means.items()}
    methods = tuple(dict.fromkeys(name for row in means.values() for name in row))
    return float(np.mean(list(stated.compare(Cells(arrays, methods, (), {})))))


def printed(metric):
    means = {}
    for (subset, variant, method), scores in TABLE.items():
        means.setdefault((subset, variant, "mlp"), {})[GLOBAL[method]] = scores[metric][0]
    return means


def test_the_table_is_complete():
    assert len(TABLE) == 3 * 4 * len(METHODS)
    assert TABLE["lin", "plain-corr", "integrated_gradients"] == {
        "mass_accuracy": (0.857, 0.036),
        "fni_emd": (0.960, 0.009),
    }
    assert all(0 < mean < 1 and 0 <= spread < mean for row in TABLE.values() for mean, spread in row.values())


@pytest.mark.parametrize("stated", STATEMENTS, ids=lambda each: each.statement[:30])
@pytest.mark.parametrize("metric", METRICS)
def test_the_statements_hold_in_the_table(stated, metric):
    if metric in stated.metrics:
        assert number(stated, printed(metric)) > stated.bound


IG, SHAP, NET, ATTRIBUTION = (GLOBAL[name] for name in METHODS)
TWO = {
    ("lin", "plain-white", "mlp"): {IG: 0.9, SHAP: 0.5, NET: 0.3, ATTRIBUTION: 0.4},
    ("lin", "plain-corr", "mlp"): {IG: 0.4, SHAP: 0.5, NET: 0.6, ATTRIBUTION: 0.3},
}
XOR = {
    ("xor", "plain-white", "mlp"): {IG: 0.5, SHAP: 0.5, NET: 0.4, ATTRIBUTION: 0.8},
    ("xor", "dist-white", "mlp"): {IG: 0.6, SHAP: 0.4, NET: 0.5, ATTRIBUTION: 0.7},
}


@pytest.mark.parametrize(
    ("words", "means", "expected"),
    [
        ("above SHAP", TWO, 1 / 2),
        ("above PatternNet", TWO, 1 / 2),
        ("On LIN and MULT Integrated", TWO, 1 / 2),
        ("Correlated noise", TWO, 2.5 / 4),  # SHAP ties: a half; PatternNet rises
        ("On XOR PatternAttribution", XOR, 1.0),
        ("distractors lower", XOR, 2 / 3),
    ],
)
def test_statements_on_small_tables(words, means, expected):
    stated = next(each for each in STATEMENTS if words in each.statement)
    found = number(stated, means)
    assert found == pytest.approx(expected)


def test_the_claims_are_about_no_cell_of_xai_tris():
    assert CLAIMS.applies(("lin", "dist-white", "mlp"))
    assert not CLAIMS.applies(("lin", "white", "mlp"))
    assert not CLAIMS.applies(("lin", "dist-white", "cnn"))
