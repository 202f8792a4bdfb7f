import numpy as np
import pytest
import torch
from generators.gradient_networks import ask, batch, bending, outputs
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.explainers.gradients.guided_ig import GuidedIG

CASES = {"guided_ig": ExplainerCase(parameters={"n_steps": 3}, waits=4)}
SETTINGS = [(9, 0.25, 0.02), (6, 0.1, 1.0), (8, 0.5, 0.3), (5, 0.0, 0.1)]


@pytest.mark.parametrize(("n_steps", "fraction", "max_dist"), SETTINGS)
def test_oracle(n_steps, fraction, max_dist):
    model, (images, targets) = bending(), batch()
    images[0, :, 1, 2] = 0
    maps = GuidedIG(n_steps=n_steps, fraction=fraction, max_dist=max_dist)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.guided_ig(model, image, target, n_steps, fraction, max_dist)
        torch.testing.assert_close(found, expected.sum(0))


@pytest.mark.parametrize(("n_steps", "fraction", "max_dist"), SETTINGS[:3])
def test_parity_with_the_authors_package(monkeypatch, n_steps, fraction, max_dist):
    package = pytest.importorskip("saliency.core")
    quantile = np.quantile  # whose parameter method the package knows by its name of before numpy 2.4
    monkeypatch.setattr(np, "quantile", lambda values, q, interpolation: quantile(values, q, method=interpolation))
    model, (images, targets) = bending(), batch()
    maps = GuidedIG(n_steps=n_steps, fraction=fraction, max_dist=max_dist)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        x = image.permute(1, 2, 0).numpy()
        theirs = package.GuidedIG().GetMask(
            x, ask(model, target), x_steps=n_steps, fraction=fraction, max_dist=max_dist
        )
        torch.testing.assert_close(found, torch.from_numpy(theirs).sum(2), rtol=0, atol=1e-8)


def test_without_leave_to_leave_the_line_it_is_a_riemann_sum_of_integrated_gradients():
    model, (images, targets) = bending(), batch(1)
    steps = [oracle.gradient(model, images[0] * k / 5, targets[0]) for k in range(5)]
    expected = (images[0] * torch.stack(steps).mean(0)).sum(0)
    torch.testing.assert_close(GuidedIG(n_steps=5, max_dist=0.0)(model, images, targets)[0], expected)


def test_it_is_complete_with_many_steps():
    model, (images, targets) = bending(), batch(2)
    difference = outputs(model, images, targets) - outputs(model, torch.zeros_like(images), targets)
    found = GuidedIG(n_steps=800)(model, images, targets).sum((1, 2))
    torch.testing.assert_close(found, difference, rtol=0.02, atol=0.01)
    nothing = GuidedIG(n_steps=3)(model, torch.zeros_like(images), targets)
    assert nothing.abs().max() == 0
