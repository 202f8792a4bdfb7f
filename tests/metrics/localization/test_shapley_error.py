import numpy as np
import pytest
import torch
from oracles import use as oracle
from refusals import refused

import xaibench as xb
from xaibench.benchmarks.certified.hand_set_networks import HAND_SET
from xaibench.metrics import shapley_error, sign_agreement
from xaibench.models import build


@pytest.fixture
def given():
    rng = np.random.default_rng(0)
    maps, values = rng.integers(-3, 4, (2, 20, 3, 4)) * 0.7
    values[0] = maps[1] = 0
    return maps, values


@pytest.mark.parametrize("metric", [shapley_error, sign_agreement], ids=lambda metric: metric.__name__)
def test_they_are_what_is_counted_by_hand(metric, given):
    expected = [getattr(oracle, metric.__name__)(*pair) for pair in zip(*given, strict=True)]
    scores = metric(*given, reduction="none")
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    assert np.isnan(scores[0])
    assert metric(*given) == pytest.approx(np.nanmean(expected))
    as_tensors = metric(*map(torch.from_numpy, given), reduction="none")
    assert isinstance(as_tensors, torch.Tensor)
    np.testing.assert_array_equal(as_tensors, scores)
    refused(ValueError, "got maps [1, 3, 4] and values [20, 3, 4]", lambda: metric(given[0][2], given[1]))
    refused(ValueError, "values must be finite, got NaN", lambda: metric(given[0], np.full_like(given[0], np.nan)))


def test_huge_numbers_do_not_overflow():
    assert shapley_error(np.full((1, 2, 2), -1.5e308), np.full((1, 2, 2), 1.5e308)) == 2


@pytest.mark.parametrize("network", HAND_SET)
def test_the_exact_values_are_found_by_whoever_asks_all_coalitions(network):
    """One pixel after another in all orders, of the pixels of one cell at a time: what is left is sampling."""
    data = xb.load(f"certified:{network.rpartition('-')[0]}", seed=0, n_samples=20)
    images, values, targets = data.train.images[:2], data.train.shapley[:2], data.train.targets[:2]
    model = build(f"certified:{network}", (1, 8, 8), 2)
    maps = xb.explain("shapley_sampling", model, images, targets, output="logit", device="cpu", n_samples=100)
    assert shapley_error(maps, values) < 0.2
    valued = values.abs() > 0.01
    assert sign_agreement(maps * valued, values * valued) == 1
    assert shapley_error(values, values) == 0
    assert sign_agreement(values, values) == 1


def test_where_gradients_are_shattered_their_sign_is_wrong():
    data = xb.load("certified:shattered", seed=0, n_samples=20)
    images, values, targets = data.train.images, data.train.shapley, data.train.targets
    maps = xb.explain(
        "input_x_gradient", build("certified:shattered-mlp", (1, 8, 8), 2), images, targets, output="logit"
    )
    assert sign_agreement(maps, values) == 0
