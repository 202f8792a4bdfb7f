"""Model parameter randomization tests."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import robustness as oracle
from oracles.networks import forgotten
from oracles.simple_explainers import saliency
from part_cases import MetricCase
from torch import nn

from xaibench.metrics import efficient_mprt, parameter_randomization, random_logit, smooth_mprt
from xaibench.metrics.shared.model_scores import random_generator

CASES = {
    "parameter_randomization": MetricCase(
        drawn={"magnitude": st.booleans(), "seed": st.integers(0, 5)}, undefined=oracle.without_ranks
    ),
    "random_logit": MetricCase(
        drawn={"magnitude": st.booleans(), "similarity": st.sampled_from(["ssim", "spearman"])},
        undefined=oracle.without_ranks,
    ),
}


def test_parameter_randomization_layer_by_layer(small_case):
    _, model, images, targets = small_case
    scores, curves = parameter_randomization(*small_case, reduction="none", return_curves=True)
    twin, changed, untouched = copy.deepcopy(model), [], []
    with torch.random.fork_rng():
        for index, layer in enumerate([twin[7], twin[3], twin[1], twin[0]]):  # what has parameters, from the top
            torch.manual_seed(int(random_generator(0, index).integers(2**63)))
            layer.reset_parameters()
            changed.append(saliency(twin, images, targets).detach().numpy())
            untouched.append(torch.equal(twin[0].weight, model[0].weight))
    assert untouched == [True, True, True, False]
    original = saliency(model, images, targets).numpy()
    expected = [oracle.mean_rank_correlation(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert curves.fractions.tolist() == [0.25, 0.5, 0.75, 1.0]
    np.testing.assert_allclose(curves.values.mean(1), scores, rtol=1e-12)
    magnitude = parameter_randomization(*small_case, magnitude=True, reduction="none")
    expected = [oracle.mean_rank_correlation(abs(o), [abs(m[i]) for m in changed]) for i, o in enumerate(original)]
    np.testing.assert_allclose(magnitude, expected, rtol=1e-9)


def test_parameters_of_a_module_that_cannot_reset_itself():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(1, 2, 400).reshape(1, 1, 20, 20))

        def forward(self, images):
            return (self.weight * images).flatten(1)

    seen = []

    def weights(model, images, targets):
        seen.append(model.weight.detach().clone()[0])
        return model.weight[0]

    score = parameter_randomization(weights, Scale(), torch.ones(1, 1, 20, 20), torch.tensor([0]))
    assert abs(score) < 0.2
    assert seen[1].mean() == pytest.approx(1.5, abs=0.05)
    assert seen[1].std() == pytest.approx(seen[0].std().item(), rel=0.15)


def without_smooth_ranks(trial):
    """Where the mean over noisy images is constant: that depends on the noise, and not on the map of the image."""
    return np.isnan(trial.scores).tolist()


CASES |= {
    "smooth_mprt": MetricCase(
        quick={"n_samples": 2},
        drawn={"magnitude": st.booleans(), "n_samples": st.integers(1, 2), "noise": st.sampled_from([0.0, 0.1])},
        undefined=without_smooth_ranks,
    )
}


def smoothed(model, images, targets, samples, layers, noise=0.1):
    total = 0
    for number in range(samples):
        shake = torch.from_numpy(random_generator(0, layers + number).standard_normal(images.shape[1:]))
        noisy = torch.stack([image + noise * (image.max() - image.min()) * shake for image in images])
        total = total + saliency(model, noisy, targets).detach().numpy() / samples
    return total


def test_smooth_randomization_is_of_mean_maps_and_from_the_first_layer(larger_case):
    _, model, images, targets = larger_case
    scores, curves = smooth_mprt(*larger_case, n_samples=3, reduction="none", return_curves=True)
    original = smoothed(model, images, targets, 3, 4)
    changed = [smoothed(one, images, targets, 3, 4) for one in forgotten(model, (0, 1, 3, 7))]
    expected = [oracle.mean_rank_correlation(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert curves.fractions.tolist() == [0.25, 0.5, 0.75, 1.0]
    alone = smooth_mprt(*larger_case, n_samples=1, noise=0.0, reduction="none", return_curves=True)[1]
    usual = parameter_randomization(*larger_case, reduction="none", return_curves=True)[1]
    assert not torch.equal(alone.values[:, 0], usual.values[:, 0])  # the first layer, and not the last


def test_a_map_of_zeros_has_no_ranks(larger_case):
    _, model, images, targets = larger_case
    nothing = lambda model, images, targets: torch.zeros(len(images), *images.shape[2:])  # noqa: E731
    assert np.isnan(smooth_mprt(nothing, model, images, targets, n_samples=1))


CASES |= {
    "efficient_mprt": MetricCase(
        drawn={"magnitude": st.booleans(), "n_bins": st.integers(2, 120)}, undefined=oracle.without_ranks
    )
}


def entropy(values, bins):
    """Of a histogram, value by value."""
    low, high = float(values.min()), float(values.max())
    counts = {}
    for value in values.flatten().tolist():
        place = min(bins - 1, int((value - low) / (high - low) * bins))
        counts[place] = counts.get(place, 0) + 1
    return -sum(n / values.size * np.log(n / values.size) for n in counts.values())


def test_efficient_randomization_is_the_rise_of_the_entropy(larger_case):
    _, model, images, targets = larger_case
    *_, random = forgotten(model, (7, 3, 1, 0))
    before, after = (saliency(one, images, targets).detach().numpy() for one in (model, random))
    expected = [(entropy(b, 10) - entropy(a, 10)) / entropy(a, 10) for a, b in zip(before, after, strict=True)]
    np.testing.assert_allclose(efficient_mprt(*larger_case, n_bins=10, reduction="none"), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="n_bins=1: expected an integer of at least 2"):
        efficient_mprt(*larger_case, n_bins=1)


def test_a_map_of_one_pixel_becomes_complex_and_noise_does_not():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    model[1].weight.data = torch.eye(2, 64)
    weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 8, 8)  # noqa: E731
    images, targets = torch.ones(1, 1, 8, 8), torch.tensor([0])
    assert efficient_mprt(weights, model, images, targets) > 10
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model[1].reset_parameters()
    assert abs(efficient_mprt(weights, model, images, targets)) < 0.1


def test_the_other_class_is_another_for_every_sample_and_depends_on_the_seed(larger_case):
    _, model, images, targets = larger_case
    asked = []

    def noted(model, images, classes):
        asked.append(classes.tolist())
        return saliency(model, images, classes)

    for seed in range(8):
        random_logit(noted, model, images, targets, seed=seed)
    own, others = asked[::2], asked[1::2]
    assert all(classes == targets.tolist() for classes in own)
    assert {tuple(classes) for classes in others} == {tuple(((targets + k) % 3).tolist()) for k in (1, 2)}


@pytest.mark.parametrize("magnitude", [False, True])
def test_random_logit_is_the_similarity_of_two_maps(larger_case, magnitude):
    metrics = pytest.importorskip("skimage.metrics")
    _, model, images, targets = larger_case
    others = (targets + int(random_generator(0, 0).integers(1, 3))) % 3
    pairs = [saliency(model, images, classes).detach().numpy() for classes in (targets, others)]
    one, other = (np.abs(maps) if magnitude else maps for maps in pairs)
    expected = [
        metrics.structural_similarity(a, b, data_range=max(a.max(), b.max()) - min(a.min(), b.min()))
        for a, b in zip(one, other, strict=True)
    ]
    np.testing.assert_allclose(random_logit(*larger_case, magnitude=magnitude, reduction="none"), expected, rtol=1e-9)
    ranks = random_logit(*larger_case, similarity="spearman", magnitude=magnitude, reduction="none")
    expected = [oracle.mean_rank_correlation(a, [b]) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(ranks, expected, rtol=1e-9)
