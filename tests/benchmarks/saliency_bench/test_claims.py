"""The Saliency-Bench statements, on handwritten means."""

import numpy as np
import pytest

from xaibench.benchmarks.claims import Cells
from xaibench.benchmarks.saliency_bench.claims import CLAIMS, STATEMENTS

PET = ("pet", "-", "resnet18")


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
    low = {"precision": {"cam": 0.4, "gradcam": 0.2, "rise": 0.45}}
    assert number("low precision", means, low) == pytest.approx(np.mean([0.1, 0.4, 0.1]))
    assert number("low precision", means) is None


def test_the_statements_are_about_data_sets_without_variants():
    assert CLAIMS.applies(PET)
    assert not CLAIMS.applies(("lin", "white", "mlp"))
