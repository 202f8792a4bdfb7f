"""Each statement of a paper on scores that are written down by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xaibench.benchmarks.claims import all_claims, is_selected
from xaibench.scores.claims import Cells, evaluate_pairs, evaluate_statement

CONTROLS = ("laplace", "input")
PAPERS = all_claims()


def find(paper, words, kind="statements"):
    return next(each for each in getattr(PAPERS[paper], kind) if words in each.statement + each.datasets)


def arrays(means):
    return {cell: {name: np.full(2, float(value)) for name, value in row.items()} for cell, row in means.items()}


def number(stated, means, others=None):
    """The mean of the comparisons of a statement over cells ``{cell: {method: mean}}``; None without a comparison."""
    methods = tuple(dict.fromkeys(name for row in means.values() for name in row if name not in CONTROLS))
    other = {name: arrays(table) for name, table in (others or {}).items()}
    claim = evaluate_statement(stated, "score", Cells(arrays(means), methods, CONTROLS, other))
    return claim and claim.value


RIGID = {
    ("rigid", "corr", "mlp"): {"a": 0.1, "b": 0.2, "c": 0.3, "laplace": 0.25, "input": 0.0},
    ("rigid", "corr", "cnn"): {"a": 0.4, "b": 0.5, "c": 0.2, "laplace": 0.45, "input": 0.1},
}
IG, SHAP, NET, ATTRIBUTION = (
    f"{name}-signed" for name in ("integrated_gradients", "deep_shap", "pattern_net", "pattern_attribution")
)
TWO = {
    ("lin", "plain-white", "mlp"): {IG: 0.9, SHAP: 0.5, NET: 0.3, ATTRIBUTION: 0.4},
    ("lin", "plain-corr", "mlp"): {IG: 0.4, SHAP: 0.5, NET: 0.6, ATTRIBUTION: 0.3},
}
XOR = {
    ("xor", "plain-white", "mlp"): {IG: 0.5, SHAP: 0.5, NET: 0.4, ATTRIBUTION: 0.8},
    ("xor", "dist-white", "mlp"): {IG: 0.6, SHAP: 0.4, NET: 0.5, ATTRIBUTION: 0.7},
}
PET = ("pet", "-", "resnet18")
PHOTOGRAPHS = {PET: {"cam": 0.5, "gradcam": 0.6, "saliency": 0.3, "rise": 0.55}}


@pytest.mark.parametrize(
    ("words", "means", "expected"),
    [
        ("On RIGID with correlated backgrounds the Laplace filter outperforms", RIGID, 4 / 6),
        ("the best of all for the MLP", RIGID, 2 / 3),
        ("On RIGID the CNN is explained better", RIGID, 2 / 3),
        ("On IMAGENET", RIGID, None),
        ("IMAGENET, too, the CNN is", {(s, "imagenet", m): row for (s, _, m), row in RIGID.items()}, 2 / 3),
        ("IMAGENET, too, controls are alike", RIGID, None),
        (
            "higher on IMAGENET",
            {
                ("xor", "imagenet", "cnn"): {"input": 0.4},
                ("rigid", "white", "cnn"): {"input": 0.2},
                ("lin", "corr", "cnn"): {"input": 0.0},
            },
            0.3,
        ),
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
            "Correlated backgrounds",
            {("lin", "white", "cnn"): {"a": 0.5, "b": 0.1}, ("lin", "corr", "cnn"): {"a": 0.4, "b": 0.2}},
            1 / 2,
        ),
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
def test_statements_about_tetrominoes(words, means, expected):
    assert number(find("xai_tris", words), means) == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("paper", "words", "means", "expected"),
    [
        ("pattern_gam", "above SHAP", TWO, 1 / 2),
        ("pattern_gam", "above PatternNet", TWO, 1 / 2),
        ("pattern_gam", "On LIN and MULT Integrated", TWO, 1 / 2),
        ("pattern_gam", "Correlated noise", TWO, 2.5 / 4),  # SHAP ties: a half; PatternNet rises
        ("pattern_gam", "On XOR PatternAttribution", XOR, 1.0),
        ("pattern_gam", "distractors lower", XOR, 2 / 3),
        ("saliency_bench", "RISE outperforms", PHOTOGRAPHS, 0.0),
        ("saliency_bench", "RISE outperforms", {PET: PHOTOGRAPHS[PET] | {"rise": 0.9}}, 1.0),
        ("saliency_bench", "In the pointing game", PHOTOGRAPHS, 3 / 4),
    ],
)
def test_statements_of_other_papers(paper, words, means, expected):
    assert number(find(paper, words), means) == pytest.approx(expected)


def test_statements_that_compare_with_other_scores():
    precision = {"precision": {PET: {"cam": 0.4, "gradcam": 0.2, "rise": 0.45}}}
    stated = find("saliency_bench", "low precision")
    assert number(stated, PHOTOGRAPHS, precision) == pytest.approx(np.mean([0.1, 0.4, 0.1]))
    assert number(stated, PHOTOGRAPHS) is None


@pytest.mark.parametrize("metric", ["mass_accuracy", "fni_emd"])
def test_the_statements_hold_in_the_printed_table(metric):
    """Of Clark et al., NeurIPS 2025, with the three decimals of its evaluation notebook."""
    table = pd.read_csv(Path(__file__).parent / "pattern_gam" / "printed_table.csv")
    means = {}
    for row in table.to_dict("records"):
        means.setdefault((row["subset"], row["variant"], "mlp"), {})[f"{row['method']}-signed"] = row[metric]
    assert len(means) == 12
    assert all(row.keys() == {IG, SHAP, NET, ATTRIBUTION} for row in means.values())
    stated = [each for each in PAPERS["pattern_gam"].statements if metric in each.metrics]
    assert len(stated) >= 5
    assert all(number(each, means) > each.bound for each in stated)


def watermark_scores(shown, plain, names, variant="bright"):
    """The same pairs for every method: ``[3 regimes][pairs]``."""
    return {
        (regime, variant, "small_cnn"): {name: np.stack([one, other], -1)[None] for name in names}
        for regime, one, other in zip(
            ("confounder", "suppressor", "none"), np.array(shown), np.array(plain), strict=True
        )
    }


def test_statements_about_watermarks():
    five = find("watermarks", "class-dependent", "pairs").options["methods"]

    def value(words, scores):
        return evaluate_pairs(find("watermarks", words, "pairs"), scores)

    scores = watermark_scores([[2.0, 4.0], [2.0, 4.0], [3.0, 3.0]], [[1.0, 1.0], [1.0, 5.0], [1.0, 1.0]], five)
    assert value("in every training setting", scores) == pytest.approx(0.5)  # suppressor: +1 and -1, tied ranks
    assert value("substantially elevated", scores) == pytest.approx(0.0)  # both means are 3
    assert value("substantially elevated", {k: v for k, v in scores.items() if k[0] == "none"}) == 1
    scores = watermark_scores([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[0.0, 0.0]] * 3, five)
    assert value("class-dependent", scores) == pytest.approx(0.8)
    del scores["suppressor", "bright", "small_cnn"]
    assert math.isnan(value("class-dependent", scores))
    bright = watermark_scores([[2.0, 4.0]] * 3, [[1.0, 1.0]] * 3, (*five, "sobel", "laplace"))
    assert value("Edge detection", bright) == 1
    assert math.isnan(value("bright intensities", bright))
    dark = watermark_scores([[1.0, 2.0]] * 3, [[1.0, 1.0]] * 3, five, variant="inverted")
    assert value("bright intensities", bright | dark) == pytest.approx(0.5)


def test_cells_of_repeated_photographs_or_poor_networks_support_no_statement():
    leave_out, imagenet, white = PAPERS["xai_tris"].leave_out, ("lin", "imagenet", "mlp"), ("lin", "white", "mlp")
    assert leave_out(imagenet, 95.0, "1,000 photographs are the backgrounds of 40,000 samples.")
    assert leave_out(white, 79.9, "")
    assert leave_out(imagenet, 95.0, "") == leave_out(white, 80.0, "a note") == leave_out(white, math.nan, "") == ""
    assert PAPERS["watermarks"].leave_out(("none", "bright", "small_cnn"), 10.0, "a note") == ""


@pytest.mark.parametrize(
    ("cell", "papers"),
    [
        (("lin", "white", "mlp"), {"xai_tris"}),
        (("lin", "white", "vit"), set()),
        (("lin", "dist-white", "mlp"), {"pattern_gam"}),
        (("lin", "dist-white", "cnn"), set()),
        (("pet", "-", "cnn"), {"saliency_bench"}),
        (("none", "bright", "small_cnn"), {"watermarks"}),
        (("none", "bright", "blind:small_cnn"), set()),
    ],
)
def test_statements_are_about_the_cells_of_their_paper(cell, papers):
    assert {name for name, paper in PAPERS.items() if is_selected(cell, paper.applies)} == papers


def test_bounds_that_are_tried_enclose_the_bound():
    kinds = ("statements", "correlations", "pairs")
    every = [each for paper in PAPERS.values() for kind in kinds for each in getattr(paper, kind)]
    assert len(every) == 52
    tried = [(each.tried, each.bound) for each in every if each.tried]
    assert len(tried) > 20
    assert all(low < bound < high for (low, high), bound in tried)
