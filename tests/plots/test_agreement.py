import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import xaibench as xb
from xaibench.plots.figures import encode

NAMES = ["iou", "deletion", "hit"]


def table(values):
    return pd.DataFrame(values, index=NAMES, columns=NAMES)


@pytest.fixture
def matrix():
    r = table([[1.0, -0.5, 0.25], [-0.5, 1.0, np.nan], [0.25, np.nan, 1.0]])
    kind = table([["spearman", "spearman", "point-biserial"]] * 2 + [["point-biserial"] * 3])
    return SimpleNamespace(coefficients=r, n=table([[9, 7, 8], [7, 7, 6], [8, 6, 8]]), kind=kind)


def texts(figure):
    (axes,) = figure.axes
    return {(t.get_position()[1] + 0.5, t.get_position()[0] + 0.5): t.get_text() for t in axes.texts}


def test_each_pair_is_one_cell_with_its_number(matrix):
    figure = xb.plots.agreement(matrix)
    assert texts(figure) == {(1, 1): "−0.50", (2, 1): "0.25†", (2, 2): "–"}
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["iou", "deletion"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["deletion", "hit"]
    assert figure.texts[0].get_text() == "Spearman, † point-biserial; n = 6 to 8"


def test_color_shows_sign_and_strength(matrix):
    filled = {p.get_xy(): p for p in xb.plots.agreement(matrix).axes[0].patches if p.get_fill()}
    assert filled[0, 0].get_facecolor()[:3] != filled[0, 1].get_facecolor()[:3]
    assert filled[0, 0].get_alpha() == pytest.approx(2 * filled[0, 1].get_alpha())
    assert filled[1, 1].get_alpha() == 0


def test_what_rounds_to_zero_has_no_sign(matrix):
    matrix.coefficients.loc["deletion", "iou"] = -0.001
    assert texts(xb.plots.agreement(matrix))[1, 1] == "0.00"


def test_labels_and_one_number_of_samples(matrix):
    matrix.n.loc[:, :] = 5
    matrix.kind.loc[:, :] = "spearman"
    figure = xb.plots.agreement(matrix, {"iou": "IoU $x$"})
    assert figure.texts[0].get_text() == "Spearman; n = 5"
    svg = encode(figure, "svg").decode()
    assert re.search(r">IoU \$x\$<", svg)
    assert encode(xb.plots.agreement(matrix, {"iou": "IoU $x$"}), "svg").decode() == svg
    assert encode(figure, "png")[:4] == b"\x89PNG"
