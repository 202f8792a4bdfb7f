import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics import comprehensiveness, sufficiency

FRACTIONS = st.floats(0, 1, exclude_min=True)
BASELINES = st.sampled_from([0.0, -1.5, "blur"])
CASES = {
    "comprehensiveness": MetricCase(drawn={"fraction": FRACTIONS, "baseline": BASELINES}),
    "sufficiency": MetricCase(drawn={"fraction": st.lists(FRACTIONS, min_size=1, max_size=3), "baseline": BASELINES}),
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("metric", [comprehensiveness, sufficiency])
def test_falls_without_and_with_the_top_pixels(case, metric):
    model, images, maps, targets = case
    for fraction, k in ((0.2, 8), (0.5, 21), (1.0, 42), (0.001, 1)):
        scores = metric(model, images, maps, targets, fraction=fraction, reduction="none")
        by_hand = [getattr(oracle, metric.__name__)(model, *one, k) for one in zip(images, maps, targets, strict=True)]
        np.testing.assert_allclose(scores, by_hand, atol=1e-6)


@pytest.mark.parametrize("metric", [comprehensiveness, sufficiency])
def test_eraser_divides_five_shares_by_six_and_we_by_five(case, metric):
    shares = (0.01, 0.05, 0.1, 0.2, 0.5)
    alone = [metric(*case, fraction=share) for share in shares]
    assert metric(*case, fraction=shares) == pytest.approx(np.mean(alone), abs=1e-6)
    assert metric(*case, fraction=shares) == pytest.approx(metric(*case, fraction=list(shares[::-1])), abs=1e-6)


def test_saliency_bench_prints_one_formula_for_both_and_they_differ(case):
    model, images, maps, targets = case
    # What is left when the top is gone is what the reversed map keeps.
    without = comprehensiveness(model, images, maps, targets, fraction=0.5, reduction="none")
    only = sufficiency(model, images, -maps, targets, fraction=0.5, reduction="none")
    np.testing.assert_allclose(without, only, atol=1e-6)
    right = sufficiency(model, images, maps, targets, fraction=0.5, reduction="none")
    assert ((without - right).abs() > 1e-2).any()


def test_all_pixels_are_sufficient_and_their_loss_is_total(case):
    model, images, maps, targets = case
    assert sufficiency(model, images, maps, targets, fraction=1.0) == pytest.approx(0, abs=1e-6)
    lost = np.mean([oracle.probability(model, torch.zeros(2, 7, 6), y) for y in targets])
    whole = np.mean([oracle.probability(model, *one) for one in zip(images, targets, strict=True)])
    assert comprehensiveness(model, images, maps, targets, fraction=1.0) == pytest.approx(whole - lost, abs=1e-6)
