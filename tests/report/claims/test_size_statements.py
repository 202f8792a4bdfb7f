"""The statements about both image sizes: by hand, against scipy, and on two runs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from xaibench.report.claims.claim import Cells
from xaibench.report.claims.size_statements import STATEMENTS, across_sizes
from xaibench.report.read.results import read_run

CELL = ("lin", "white", "mlp")


def numbers(words, small, large):
    (stated,) = (each for each in STATEMENTS if words in each.statement)
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


def test_two_runs_are_held_against_each_other_by_skill(shared_run):
    run = read_run(shared_run)
    assert across_sizes(run, run, resamples=50) == []  # it has no skills

    scores = run.scores.assign(metric=run.scores["metric"].cat.rename_categories({"emd_perf": "emd_skill"}))
    metrics = {"emd_skill": replace(run.metrics["emd_perf"], name="emd_skill", skill_of="emd_perf")}
    skilled = replace(run, scores=scores[scores["metric"] == "emd_skill"], metrics=metrics)
    found = across_sizes(skilled, skilled, resamples=50)

    assert {claim.metric for claim in found} == {"emd_skill"}
    by_words = {claim.statement.split()[0]: claim for claim in found}
    assert by_words["LIME"].value == pytest.approx(0)
    assert by_words["LIME"].verdict == "undecided"
    assert by_words["Trends"].value == 1
    assert by_words["Trends"].low < 1
