import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import agreement as oracle
from scipy.stats import pointbiserialr, spearmanr

from xaibench.metrics import agreement

rng = np.random.default_rng(0)
UP = {"x": True, "y": True}
scores = st.lists(st.integers(-20, 20), min_size=2, max_size=12)


def coefficient(x, y, **options):
    return agreement({"x": x, "y": y}, higher_is_better=UP, **options).coefficients.loc["x", "y"]


@given(data=st.data(), x=scores)
@settings(max_examples=80, deadline=None)
def test_spearman_against_the_definition(data, x):
    y = data.draw(st.lists(st.integers(-3, 3), min_size=len(x), max_size=len(x)))
    found = coefficient(x, y, binary=())
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(oracle.spearman(x, y), abs=1e-12)
        assert found == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


@given(data=st.data(), y=scores)
@settings(max_examples=80, deadline=None)
def test_point_biserial_against_the_definition(data, y):
    hits = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(y), max_size=len(y)))
    found = agreement({"hit": hits, "y": y}, higher_is_better={"y": True}, binary=["hit"])
    assert found.kind.loc["y", "hit"] == "point-biserial"
    if len(set(hits)) == 1 or len(set(y)) == 1:
        assert math.isnan(found.coefficients.loc["hit", "y"])
    else:
        assert found.coefficients.loc["hit", "y"] == pytest.approx(oracle.point_biserial(hits, y), abs=1e-12)
        assert found.coefficients.loc["hit", "y"] == pytest.approx(pointbiserialr(hits, y).statistic, abs=1e-12)


def test_lower_is_better_is_turned_first():
    good = rng.random(50)
    matrix = agreement({"iou": good, "deletion": 1 - good, "emd": -good}, higher_is_better={"deletion": False})
    assert np.array_equal(matrix.coefficients, np.ones((3, 3)))  # emd is registered as lower is better
    unturned = agreement({"iou": good, "deletion": 1 - good}, higher_is_better={"deletion": True})
    assert unturned.coefficients.loc["iou", "deletion"] == -1.0


def test_undefined_scores_are_dropped_pair_by_pair():
    x, y, z = rng.random((3, 10))
    x[[0, 1]], y[[1, 2, 3]] = np.nan, np.nan
    matrix = agreement({"x": x, "y": y, "z": z}, higher_is_better=UP | {"z": True})
    assert matrix.n.loc["x"].tolist() == [8, 6, 8]
    assert matrix.n.loc["z"].tolist() == [8, 7, 10]
    assert matrix.coefficients.loc["x", "y"] == pytest.approx(oracle.spearman(x[4:], y[4:]), abs=1e-12)
    assert matrix.coefficients.loc["x", "z"] == pytest.approx(oracle.spearman(x[2:], z[2:]), abs=1e-12)
    assert matrix.coefficients.loc["z", "z"] == 1.0


def test_undefined_coefficients():
    assert math.isnan(coefficient([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert math.isnan(coefficient([1.0], [2.0]))
    assert math.isnan(coefficient([], []))
    nothing = agreement({"x": [np.nan, 1.0], "y": [1.0, np.nan]}, higher_is_better=UP)
    assert math.isnan(nothing.coefficients.loc["x", "y"])
    assert nothing.n.loc["x", "y"] == 0


def test_only_hits_and_misses_are_binary():
    found = agreement({"x": [0, 1, np.nan, 1], "y": [0, 1, 0.5, 1]}, higher_is_better=UP)
    assert found.kind.loc["x"].tolist() == ["point-biserial", "point-biserial"]
    assert found.kind.loc["y", "y"] == "spearman"
    # A tie makes a hit fractional; it stays a hit when it is named as one.
    named = agreement({"x": [0, 0.5, 1], "y": [3.0, 2.0, 9.0]}, higher_is_better=UP, binary=["x"])
    assert named.kind.loc["x", "y"] == "point-biserial"


@given(x=hnp.arrays(np.float64, 6, elements=st.floats(-1e300, 1e300)), y=hnp.arrays(np.bool_, 6))
@settings(max_examples=100, deadline=None)
def test_scores_of_any_size_stay_in_range(x, y):
    for binary in (("y",), ()):
        found = coefficient(x, y.astype(float), binary=binary)
        assert -1 <= found <= 1 or len(set(x)) == 1 or len(set(y)) == 1


def test_tables_tensors_and_lists_are_the_same():
    x, y = rng.random((2, 7))
    expected = coefficient(x, y)
    assert coefficient(x.tolist(), y.tolist()) == coefficient(torch.from_numpy(x), torch.from_numpy(y)) == expected
    table = pd.DataFrame({"x": x, "y": y})
    assert agreement(table, higher_is_better=UP).coefficients.loc["x", "y"] == expected


@pytest.mark.parametrize(
    ("scores", "options", "named"),
    [
        ({}, {}, "scores"),
        ({"iou": [1.0], "f1": [1.0, 2.0]}, {}, "scores"),
        ({"iou": np.ones((2, 2))}, {}, "iou"),
        ({"iou": 0.5}, {}, "iou"),
        ({"iou": [np.inf]}, {}, "iou"),
        ({"mine": [1.0]}, {}, "higher_is_better"),
        ({"math:sqrt": [1.0]}, {}, "higher_is_better"),
        ({"iou": [1.0]}, {"higher_is_better": {"io": True}}, "higher_is_better"),
        ({"iou": [1.0]}, {"binary": ["hit"]}, "binary"),
    ],
)
def test_bad_input_is_refused(scores, options, named):
    with pytest.raises(ValueError, match=named):
        agreement(scores, **options)


@pytest.mark.parametrize("name", ["hit", "pointing_game"])
def test_the_pointing_game_is_binary_where_maxima_tie(name):
    hits, other = [0.0, 0.5, 1.0, 1.0, 0.25], [0.1, 0.9, 0.2, 0.8, 0.3]
    found = agreement({name: hits, "y": other}, higher_is_better={"y": True})
    assert found.kind.loc[name, "y"] == "point-biserial"
    assert found.coefficients.loc[name, "y"] == pytest.approx(np.corrcoef(hits, other)[0, 1], abs=1e-12)
    assert agreement({"x": hits, "y": other}, higher_is_better=UP).kind.loc["x", "y"] == "spearman"
