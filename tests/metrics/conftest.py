"""What metrics of models and of explainers are asked for: small networks in float64, with images and targets."""

import pytest
from oracles.networks import batch, small_cnn
from oracles.simple_explainers import saliency


@pytest.fixture(scope="module")
def small_case():
    """Explainer, network, images of 6 x 5 pixels, and targets."""
    images, _, targets = batch(n=4, size=(6, 5))
    return saliency, small_cnn().double(), images.double(), targets


@pytest.fixture(scope="module")
def larger_case():
    """The same of 9 x 8 pixels."""
    images, _, targets = batch(n=4, size=(9, 8))
    return saliency, small_cnn().double(), images.double(), targets


@pytest.fixture(scope="module")
def model_case():
    """Network, images, maps and targets."""
    images, maps, targets = batch(n=3)
    return small_cnn().double(), images.double(), maps.double(), targets
