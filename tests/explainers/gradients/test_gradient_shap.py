import captum.attr
import numpy as np
import pytest
import torch

from xaibench.explainers import explain
from xaibench.tensors.random_numbers import sample_generators


@pytest.mark.parametrize("stdev", [0.0, 0.2])
def test_gradient_shap_agrees_with_captum_given_the_same_draws(double, images, targets, monkeypatch, stdev):
    model, explained = double
    baselines = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    maps = explain("gradient_shap", model, images, targets, baselines=baselines, stdev=stdev, seed=7)
    drawn = [
        (rng.random(5), rng.integers(3, size=5), rng.standard_normal((5, 1, 8, 8)))
        for rng in sample_generators(7, images)
    ]
    along, start, noise = (np.stack(kind) for kind in zip(*drawn, strict=True))
    noise = torch.tensor(stdev * noise).flatten(0, 1)
    monkeypatch.setattr(np.random, "uniform", lambda *_: along.reshape(-1))
    monkeypatch.setattr(np.random, "choice", lambda *_: start.reshape(-1))
    monkeypatch.setattr(torch, "normal", lambda *_: noise)
    theirs = captum.attr.GradientShap(explained).attribute(
        images.double(), baselines.double(), target=targets, stdevs=stdev
    )
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)


def test_gradient_shap_with_many_points_nears_integrated_gradients(mlp, images, targets):
    expected = explain("ig", mlp, images, targets)
    few, many = (explain("gradient_shap", mlp, images, targets, n_samples=n) for n in (2, 3000))
    assert (many - expected).abs().mean() < 0.1 * (few - expected).abs().mean()
