"""Which accuracies differ from the paper's by more than chance."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from xaibench.report.numbers.summary import accuracy_margins

#: Eight trainings of one cell, two of which failed; their mean is the 86.3 % that eight once had.
EIGHT = [49.6, 97.6, 97.2, 96.5, 97.4, 97.0, 97.5, 57.6]


def run_of(cells, test_samples=1000, paper=86.4):
    """``cells``: (subset, model) to its test accuracies."""
    places = [{"subset": subset, "variant": "corr", "model": model} for subset, model in cells]
    accuracy = [
        place | {"trainings": len(tests), "mean": np.mean(tests), "paper": paper, "test_samples": test_samples}
        for place, tests in zip(places, cells.values(), strict=True)
    ]
    trainings = [
        place | {"test_accuracy": test} for place, tests in zip(places, cells.values(), strict=True) for test in tests
    ]
    return SimpleNamespace(accuracy=pd.DataFrame(accuracy), trainings=pd.DataFrame(trainings))


def test_one_cell_goes_by_its_own_trainings_and_by_the_test_samples():
    tests = [90.0, 92.0, 94.0]
    (margin,) = accuracy_margins(run_of({("lin", "mlp"): tests})).values()
    binomial = (92 * 8 + 86.4 * 13.6) / 1000
    expected = stats.t.ppf(0.975, 2) * math.sqrt(2 * np.var(tests, ddof=1) / 3 + binomial)
    assert margin == pytest.approx(expected, rel=1e-12)


def test_three_alike_of_a_network_that_varies_elsewhere_are_not_made_sure_of():
    # Three trainings gave 97.1 on average, the paper has 86.4; eight gave 49.6 to 97.6.
    few = run_of({("lin", "cnn"): [97.6, 96.5, 97.2], ("mult", "cnn"): [95.0, 81.0, 98.0]})
    assert accuracy_margins(few)["lin", "corr", "cnn"] > 97.1 - 86.4
    assert accuracy_margins(run_of({("lin", "cnn"): EIGHT}))["lin", "corr", "cnn"] > abs(np.mean(EIGHT) - 86.4)
    # What never varies is told apart.
    sure = run_of({("lin", "llr"): [99.9, 100.0, 99.9], ("mult", "cnn"): [95.0, 81.0, 98.0]}, paper=86.4)
    assert accuracy_margins(sure)["lin", "corr", "llr"] < 5


def test_what_may_have_failed_in_the_paper_counts_where_ours_is_better():
    cells = {
        ("lin", "cnn"): [97.9, 96.3, 95.2, 99.4, 95.1, 95.3],
        ("rigid", "cnn"): [91.5, 88.0, 76.2, 87.0, 86.0, 89.0],
    }

    def margin(learned, paper=86.4):
        run = run_of(cells, paper=paper)
        run.accuracy["learned"] = learned
        return accuracy_margins(run)["lin", "corr", "cnn"]

    none_of_six = 1 - 0.025 ** (1 / 6)  # Clopper-Pearson's upper end
    assert margin([6, 5]) == pytest.approx(margin([6, 6]) + none_of_six * (np.mean(cells["lin", "cnn"]) - 50))
    assert margin([6, 5]) > np.mean(cells["lin", "cnn"]) - 86.4 > margin([6, 6])
    assert margin([6, 5], paper=99.9) == margin([6, 6], paper=99.9)  # failures do not make it better


def test_one_training_tells_no_spread():
    assert math.isnan(accuracy_margins(run_of({("lin", "mlp"): [90.0]}))["lin", "corr", "mlp"])


def test_under_no_difference_few_are_marked():
    rng = np.random.default_rng(0)
    marked = []
    for _ in range(300):
        tests = rng.normal(90, 2, (4, 3)) + rng.normal(0, 0.95, (4, 1))
        paper = rng.normal(90, 2 / math.sqrt(3)) + rng.normal(0, 0.95)
        found = accuracy_margins(run_of({(f"s{i}", "mlp"): row for i, row in enumerate(tests)}, paper=paper))
        marked.append(abs(tests[0].mean() - paper) > found["s0", "corr", "mlp"])
    assert 0.01 < np.mean(marked) < 0.08
