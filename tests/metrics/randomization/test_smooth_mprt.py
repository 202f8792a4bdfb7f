import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import robustness as oracle
from oracles.networks import batch, forgotten, small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase

from xaibench.metrics import parameter_randomization, smooth_mprt
from xaibench.metrics.shared.model_inputs import random_generator


def without_ranks(trial):
    """Where the mean over noisy images is constant: that depends on the noise, and not on the map of the image."""
    return np.isnan(trial.scores).tolist()


CASES = {
    "smooth_mprt": MetricCase(
        quick={"n_samples": 2},
        drawn={"magnitude": st.booleans(), "n_samples": st.integers(1, 2), "noise": st.sampled_from([0.0, 0.1])},
        undefined=without_ranks,
    )
}


@pytest.fixture(scope="module")
def case():
    images, _, targets = batch(n=4, size=(9, 8))
    return saliency, small_cnn().double(), images.double(), targets


def smoothed(model, images, targets, samples, layers, noise=0.1):
    total = 0
    for number in range(samples):
        shake = torch.from_numpy(random_generator(0, layers + number).standard_normal(images.shape[1:]))
        noisy = torch.stack([image + noise * (image.max() - image.min()) * shake for image in images])
        total = total + saliency(model, noisy, targets).detach().numpy() / samples
    return total


def test_smooth_randomization_is_of_mean_maps_and_from_the_first_layer(case):
    _, model, images, targets = case
    scores, curves = smooth_mprt(*case, n_samples=3, reduction="none", return_curves=True)
    original = smoothed(model, images, targets, 3, 4)
    changed = [smoothed(one, images, targets, 3, 4) for one in forgotten(model, (0, 1, 3, 7))]
    expected = [oracle.mean_rank_correlation(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert curves.fractions.tolist() == [0.25, 0.5, 0.75, 1.0]
    alone = smooth_mprt(*case, n_samples=1, noise=0.0, reduction="none", return_curves=True)[1]
    usual = parameter_randomization(*case, reduction="none", return_curves=True)[1]
    assert not torch.equal(alone.values[:, 0], usual.values[:, 0])  # the first layer, and not the last


def test_a_map_of_zeros_has_no_ranks(case):
    _, model, images, targets = case
    nothing = lambda model, images, targets: torch.zeros(len(images), *images.shape[2:])  # noqa: E731
    assert np.isnan(smooth_mprt(nothing, model, images, targets, n_samples=1))
