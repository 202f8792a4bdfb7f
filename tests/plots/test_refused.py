"""Inputs that the figures refuse: the call, and the words of the error that name what is wrong."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import xaibench as xb

ROWS = pd.DataFrame({"metric": ["iou"], "method": ["a"], "mean": [0.5], "low": [0.4], "high": [0.6]})
ALONE = SimpleNamespace(coefficients=pd.DataFrame([[1.0]], ["iou"], ["iou"]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: xb.plots.agreement(ALONE), r"two or more metrics to compare, got \['iou'\]"),
        (lambda: xb.plots.budget(ROWS.iloc[:0]), "got no row"),
        (lambda: xb.plots.curves({}), "at least one label"),
        (lambda: xb.plots.curves({"one": (np.arange(3), np.ones(3))}), "one: curves must be"),
        (lambda: xb.plots.curves({"one": (np.arange(3), np.ones((2, 4)))}), "one: curves must be"),
        (lambda: xb.plots.forest(ROWS, metrics={"auc": "AUC"}), r"expected rows of each metric, got none of \['auc'\]"),
        (lambda: xb.plots.forest(ROWS.iloc[:0]), "got none of any metric"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
