import math
from dataclasses import replace

import pytest
import torch
from generators.gradient_networks import batch, bending, suppressing
from oracles import gradients as oracle
from part_cases import ExplainerCase

import xaibench as xb
from xaibench.explainers import NotFittedError, explain
from xaibench.explainers.perturbation.pattern_local import PatternLocal, tune_pattern_local
from xaibench.explainers.perturbation.surrogate import draw_coalitions, least_squares_of_sum
from xaibench.tensors.random_numbers import sample_generators

CASES = {"pattern_local": ExplainerCase(parameters={"n_samples": 100}, few={"n_samples": 20})}


def fitted(count=30, **parameters):
    training = batch(count)[0].flip(0)
    training[:, 0, 0, 0] = 0.5  # a constant value
    return PatternLocal(seed=4, neighbor_fraction=0.3, **parameters).fit(None, [training]), training.flatten(1)


@pytest.mark.parametrize(
    ("n_samples", "projected", "batch_size"), [(200, True, None), (200, True, 7), (200, False, None), (20, True, None)]
)
def test_oracle(n_samples, projected, batch_size):
    """With more samples than values and with fewer, for which the dual problem is solved."""
    model, (images, targets) = bending(), batch()
    part, training = fitted(n_samples=n_samples, project_to_boundary=projected, batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(4, images), strict=True):
        w, value = oracle.lime_surrogate(model, image, target, training, rng, n_samples)
        expected = oracle.pattern_local(training, image.flatten(), w, value, 0.3, projected=projected)
        torch.testing.assert_close(found, expected.reshape(image.shape).sum(0))


@pytest.mark.parametrize(("n_samples", "alpha"), [(200, 1.0), (200, 1e-3), (20, 1.0)])
def test_oracle_of_kernel_shap(n_samples, alpha):
    """With more coalitions than values and with fewer, for which the dual problem is solved."""
    model, (images, targets) = bending(), batch()
    part, training = fitted(surrogate="kernel_shap", n_samples=n_samples, alpha=alpha)
    maps = part(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(4, images), strict=True):
        kept = draw_coalitions(rng, n_samples, image.numel())
        w, value = oracle.shapley_surrogate(model, image, target, training, kept, alpha)
        expected = oracle.pattern_local(training, image.flatten(), w, value, 0.3, projected=True)
        torch.testing.assert_close(found, expected.reshape(image.shape).sum(0))


def test_the_surrogate_has_the_values_of_kernel_shap():
    """If the penalty is negligible: the same coalitions, baseline and constraint."""
    model, (images, targets) = bending(), batch()
    training = torch.cat([images, -images]) * 2  # of mean 0
    part = PatternLocal(surrogate="kernel_shap", n_samples=300, alpha=1e-12, seed=4)
    weights, values = part._surrogates(model, images, targets, training.flatten(1))
    for found, image, target, rng in zip(weights, images, targets, sample_generators(4, images), strict=True):
        kept = torch.from_numpy(draw_coalitions(rng, 300, image.numel()))
        outputs = model(torch.where(kept, image.flatten(), 0.0).reshape(-1, *image.shape))[:, target].detach()
        rises = outputs - outputs[1]
        expected = least_squares_of_sum(kept[2:].double(), rises[2:], rises[0])
        torch.testing.assert_close(found * image.flatten(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(values, model(images).gather(1, targets[:, None])[:, 0])


@pytest.mark.parametrize("surrogate", ["lime", "kernel_shap"])
def test_shrinkage_mixes_the_covariance_with_its_mean_variance(surrogate):
    model, (images, targets) = bending(), batch()
    part, training = fitted(surrogate=surrogate, n_samples=100, shrinkage=0.3, project_to_boundary=False)
    weights, _ = part._surrogates(model, images, targets, training)
    for found, image, w in zip(part(model, images, targets), images, weights, strict=True):
        # The covariance column by column, from the patterns of unit weights.
        unit = torch.eye(len(w), dtype=w.dtype)
        nearest = [oracle.pattern_local(training, image.flatten(), e, 0.0, 0.3, projected=False) for e in unit]
        covariance = torch.stack(nearest, 1)
        expected = 0.7 * covariance @ w + 0.3 * covariance.diagonal().mean() * w
        torch.testing.assert_close(found, expected.reshape(image.shape).sum(0))


def test_a_suppressor_gets_far_less_than_by_the_weights():
    """The network subtracts the second pixel from the first, which has noise in common with it."""
    model, training = suppressing()
    part = PatternLocal(neighbor_fraction=1.0).fit(model, [training])
    images, targets = training[:5], torch.ones(5, dtype=torch.int64)
    found = explain(part, model, images, targets, device="cpu").abs()
    assert (found[..., 1] < 0.45 * found[..., 0]).all()
    weights, _ = part._surrogates(model, images, targets, training.flatten(1))
    torch.testing.assert_close(weights, torch.tensor([[1.0, -1.0]] * 5).double(), atol=1e-3, rtol=0)


def setting():
    images, targets = batch()
    masks = torch.zeros(images[:, 0].shape, dtype=torch.bool)
    masks[:, 0] = True
    part = PatternLocal(n_samples=20, seed=1).fit(None, [batch(80)[0]])
    return part, bending(), images, masks, targets


def mass_inside(maps, masks):
    return ((maps.abs() * masks).sum((1, 2)) / maps.abs().sum((1, 2))).numpy()


@pytest.mark.parametrize("surrogate", ["lime", "kernel_shap"])
def test_the_best_trial_wins_and_the_first_is_the_given_one(surrogate):
    part, *given = setting()
    part = replace(part, surrogate=surrogate)
    found = tune_pattern_local(part, *given, mass_inside, n_trials=5, device="cpu")
    assert len(found.trials) == 5
    assert found.trials[0][0] == {}
    assert found.score == max(score for _, score in found.trials)
    assert len({score for _, score in found.trials}) > 1
    model, images, masks, targets = given
    for parameters, score in found.trials:
        maps = xb.explain(replace(part, **parameters), model, images, targets, device="cpu")
        assert mass_inside(maps, masks).mean() == pytest.approx(score)
        assert ("kernel_width" in parameters) == (bool(parameters) and surrogate == "lime")
    assert mass_inside(xb.explain(found.explainer, model, images, targets, device="cpu"), masks).mean() == found.score
    assert tune_pattern_local(part, *given, mass_inside, n_trials=5, device="cpu").trials == found.trials
    assert tune_pattern_local(part, *given, mass_inside, n_trials=2, seed=1, device="cpu").trials[1] != found.trials[1]


def test_undefined_scores_do_not_count():
    part, *given = setting()
    values = iter([math.nan, 0.25, [math.nan, 0.75], 0.5])
    found = tune_pattern_local(part, *given, lambda maps, masks: next(values), n_trials=4, device="cpu")
    assert found.score == 0.75
    assert found.explainer.alpha == found.trials[2][0]["alpha"]


def test_errors():
    part, *given = setting()
    with pytest.raises(NotFittedError):
        tune_pattern_local(PatternLocal(), *given, mass_inside)
    with pytest.raises(ValueError, match=r"tune_pattern_local\(n_trials=0\): expected an integer of at least 1"):
        tune_pattern_local(part, *given, mass_inside, n_trials=0)
    with pytest.raises(ValueError, match="score returned no number in 2 trials"):
        tune_pattern_local(part, *given, lambda maps, masks: math.nan, n_trials=2, device="cpu")
