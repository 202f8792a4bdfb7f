import math
from dataclasses import replace

import pytest
import torch
from generators.gradient_networks import batch, bending

import xaibench as xb
from xaibench.explainers import NotFittedError
from xaibench.explainers.perturbation.pattern_local import PatternLocal
from xaibench.explainers.perturbation.pattern_local_tuning import tune_pattern_local


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
