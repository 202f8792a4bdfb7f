import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles.networks import batch, forgotten, small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase
from torch import nn

from xaibench.metrics import efficient_mprt


def without_values(trial):
    """A constant map, whose entropy is 0."""
    maps = np.abs(trial.maps) if trial.parameters["magnitude"] else trial.maps
    return [bool((one == one.flat[0]).all()) for one in maps]


CASES = {
    "efficient_mprt": MetricCase(
        drawn={"magnitude": st.booleans(), "n_bins": st.integers(2, 120)}, undefined=without_values
    )
}


@pytest.fixture(scope="module")
def case():
    images, _, targets = batch(n=4, size=(9, 8))
    return saliency, small_cnn().double(), images.double(), targets


def entropy(values, bins):
    """Of a histogram, value by value."""
    low, high = float(values.min()), float(values.max())
    counts = {}
    for value in values.flatten().tolist():
        place = min(bins - 1, int((value - low) / (high - low) * bins))
        counts[place] = counts.get(place, 0) + 1
    return -sum(n / values.size * np.log(n / values.size) for n in counts.values())


def test_efficient_randomization_is_the_rise_of_the_entropy(case):
    _, model, images, targets = case
    *_, random = forgotten(model, (7, 3, 1, 0))
    before, after = (saliency(one, images, targets).detach().numpy() for one in (model, random))
    expected = [(entropy(b, 10) - entropy(a, 10)) / entropy(a, 10) for a, b in zip(before, after, strict=True)]
    np.testing.assert_allclose(efficient_mprt(*case, n_bins=10, reduction="none"), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="n_bins=1: expected an integer of at least 2"):
        efficient_mprt(*case, n_bins=1)


def test_a_map_of_one_pixel_becomes_complex_and_noise_does_not():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    model[1].weight.data = torch.eye(2, 64)
    weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 8, 8)  # noqa: E731
    images, targets = torch.ones(1, 1, 8, 8), torch.tensor([0])
    assert efficient_mprt(weights, model, images, targets) > 10
    model[1].reset_parameters()
    assert abs(efficient_mprt(weights, model, images, targets)) < 0.1
