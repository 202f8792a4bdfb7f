"""The statements about both image sizes, by hand and compared with SciPy's."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from xaibench.benchmarks.claims import Cells
from xaibench.benchmarks.xai_tris.size_claims import SIZE_STATEMENTS

CELL = ("lin", "white", "mlp")


def numbers(words, small, large):
    (stated,) = (each for each in SIZE_STATEMENTS if words in each.statement)
    small, large = (
        {cell: {name: np.asarray(value, float) for name, value in row.items()} for cell, row in means.items()}
        for means in (small, large)
    )
    methods = tuple(dict.fromkeys(name for row in small.values() for name in row))
    return list(stated.compare(Cells(small, methods, (), {"large": large})))


def test_lime_gains_what_the_sizes_differ_in_the_cells_that_both_have():
    small = {CELL: {"lime": [0.5], "a": [0.1]}, ("xor", "white", "mlp"): {"lime": [0.9]}}
    large = {CELL: {"lime": [0.1]}, ("xor", "imagenet", "mlp"): {"lime": [0.0]}}

    assert np.concatenate(numbers("LIME", small, large)) == pytest.approx([0.4])


def test_the_order_is_compared_by_kendalls_tau_for_each_draw():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, (2, 6, 5)).astype(float)  # with ties
    names = "abcdef"
    (tau,) = numbers(
        "Trends",
        {CELL: {name: first[k] for k, name in enumerate(names)}},
        {CELL: {name: second[k] for k, name in enumerate(names[:5])} | {"z": second[5]}},
    )

    assert tau == pytest.approx([kendalltau(first[:5, draw], second[:5, draw]).statistic for draw in range(5)])
