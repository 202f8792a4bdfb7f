"""Each statement on means that are written down by hand."""

import numpy as np
import pytest

from xaibench.benchmarks.claims import Cells
from xaibench.benchmarks.xai_tris.claims import CLAIMS, STATEMENTS

CONTROLS = ("laplace", "input")


def number(words, means):
    """The mean of what the statement compares, over cells ``{(scenario, background, model): {method: mean}}``."""
    stated = next(each for each in STATEMENTS if words in each.statement + each.datasets)
    arrays = {cell: {name: np.array([value]) for name, value in row.items()} for cell, row in means.items()}
    methods = tuple(dict.fromkeys(name for row in means.values() for name in row if name not in CONTROLS))
    compared = list(stated.compare(Cells(arrays, methods, CONTROLS, {})))
    return float(np.mean(compared)) if compared else None


RIGID = {
    ("rigid", "corr", "mlp"): {"a": 0.1, "b": 0.2, "c": 0.3, "laplace": 0.25, "input": 0.0},
    ("rigid", "corr", "cnn"): {"a": 0.4, "b": 0.5, "c": 0.2, "laplace": 0.45, "input": 0.1},
}


@pytest.mark.parametrize(
    ("words", "means", "expected"),
    [
        ("On RIGID with correlated backgrounds the Laplace filter outperforms", RIGID, 4 / 6),
        ("the best of all for the MLP", RIGID, 2 / 3),
        ("On RIGID the CNN is explained better", RIGID, 2 / 3),
        ("On IMAGENET", RIGID, None),
        ("Explanation performance decreases", RIGID, None),
        ("Most methods outperform", RIGID, 2 / 6),  # the best control: 0.25 and 0.45
        ("comparable to controls for the CNN", RIGID, 1 / 3),
        ("controls are on par", RIGID, 2 / 3),
        ("Controls are alike", RIGID, np.mean([0.25 / 0.3, 0.35 / 0.4])),
        ("No method is the best", RIGID, 1 / 2),
        ("No method is the best", {cell: {"a": 1.0, "b": 0.5} for cell in RIGID}, 1.0),
        ("No method is the best", {("lin", "white", "cnn"): {"a": 1.0, "b": 0.5}}, None),
        ("homogeneous", {("lin", "white", "cnn"): {"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.3, "e": 0.9}}, 0.2),
        (
            "Deep SHAP, Gradient SHAP",
            {("xor", "white", "cnn"): {"deep_shap": 0.5, "gradient_shap": 0.6, "kernel_shap": 0.0, "lime": 1.0}},
            0.1,
        ),
        (
            "do well on LIN and XOR",
            {
                ("lin", "white", "mlp"): {"pattern_net": 0.5, "pattern_attribution": 0.2, "a": 0.3, "b": 0.4},
                ("lin", "corr", "mlp"): {"pattern_net": 0.0, "a": 0.3},
            },
            2 / 4,
        ),
        (
            "struggle in various",
            {
                ("mult", "white", "mlp"): {"pattern_net": 0.5, "a": 0.3, "b": 0.6},
                ("lin", "corr", "mlp"): {"pattern_net": 0.0, "a": 0.3},
                ("xor", "corr", "cnn"): {"pattern_net": 0.0, "a": 0.3},
            },
            1 / 2,
        ),
        (
            "do not outright outperform",
            {
                ("lin", "white", "mlp"): {"pattern_net": 0.5, "pattern_attribution": 0.2, "a": 0.3, "b": 0.4},
                ("lin", "corr", "mlp"): {"pattern_net": 0.2, "pattern_attribution": 0.25, "a": 0.3},
            },
            1 / 2,
        ),
        (
            "Explanation performance decreases",
            {
                ("lin", "white", "llr"): {"a": 0.5, "b": 0.5},
                ("lin", "white", "mlp"): {"a": 0.4, "b": 0.6},
                ("lin", "white", "cnn"): {"a": 0.3, "b": 0.2},
            },
            3 / 4,
        ),
        ("LIME struggles", {("mult", "white", "mlp"): {"lime": 0.5, "a": 0.3, "b": 0.6, "c": 0.5}}, (0 + 1 + 0.5) / 3),
        (
            "The input itself",
            {("rigid", "white", "mlp"): {"input": 0.5}, ("lin", "white", "mlp"): {"input": 0.2}},
            0.3,
        ),
        (
            "stronger-64x64",
            {
                ("rigid", "white", "mlp"): {"input": 0.5},
                ("lin", "imagenet", "mlp"): {"input": 0.3},
                ("rigid", "corr", "mlp"): {"input": 0.1},
            },
            0.3,
        ),
        (
            "stronger-8x8",
            {
                ("rigid", "corr", "mlp"): {"input": 0.5},
                ("lin", "white", "mlp"): {"input": 0.3},
                ("lin", "corr", "mlp"): {"input": 0.1},
            },
            0.3,
        ),
        ("The input itself", {("lin", "white", "mlp"): {"input": 0.2}}, None),
    ],
)
def test_the_number_is_the_one_by_hand(words, means, expected):
    assert number(words, means) == (expected if expected is None else pytest.approx(expected))


def test_cells_of_repeated_photographs_or_poor_networks_support_no_statement():
    imagenet, white = ("lin", "imagenet", "mlp"), ("lin", "white", "mlp")
    assert "repeated" in CLAIMS.leave_out(imagenet, 95.0, "1,000 photographs are the backgrounds of 40,000 samples.")
    assert CLAIMS.leave_out(imagenet, 95.0, "") == CLAIMS.leave_out(white, 80.0, "") == ""
    assert "80 %" in CLAIMS.leave_out(white, 79.9, "")
    assert CLAIMS.leave_out(white, float("nan"), "") == ""


def test_bounds_that_are_tried_enclose_the_bound():
    tried = [(each.tried, each.bound) for each in STATEMENTS if each.tried]
    assert all(low < bound < high for (low, high), bound in tried)
    assert len(tried) == 14


def test_the_statements_are_about_the_scenarios_and_networks_of_the_paper():
    cells = [("lin", "white", "mlp"), ("lin", "white", "vit"), ("pet", "-", "cnn")]
    assert [CLAIMS.applies(cell) for cell in cells] == [True, False, False]
