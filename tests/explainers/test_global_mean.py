import pytest
import torch

from xaibench import models
from xaibench.explainers import build, explain


@pytest.fixture
def batches():
    rng = torch.Generator().manual_seed(3)
    images = torch.randn(10, 1, 8, 8, generator=rng, dtype=torch.float64)
    masks = torch.zeros(10, 8, 8, dtype=torch.bool)
    targets = torch.arange(10) % 2
    return [(images[:6], masks[:6], targets[:6]), (images[6:], masks[6:], targets[6:])]


def perceptron():
    return models.build("mlp", in_shape=(1, 8, 8), num_classes=2, seed=0)


def joined(batches):
    return torch.cat([images for images, _, _ in batches]), torch.cat([targets for _, _, targets in batches])


def test_it_is_the_mean_of_the_maps_one_by_one(batches):
    model = perceptron()
    images, targets = joined(batches)
    one_by_one = [explain("saliency", model, images[i : i + 1], targets[i : i + 1])[0].abs() for i in range(7)]
    fitted = build("global_mean", of="saliency", n_images=7).fit(model, batches)
    maps = explain(fitted, model, images, targets)
    assert maps.shape == (10, 8, 8)
    torch.testing.assert_close(maps[9], torch.stack(one_by_one).mean(0))
    assert torch.equal(maps[0], maps[9])


def test_signed_maps_of_one_class(batches):
    model = perceptron()
    images, _ = joined(batches)
    expected = explain("input_x_gradient", model, images, torch.ones(10, dtype=torch.long)).mean(0)
    part = build("global_mean", of="input_x_gradient", magnitude=False, target=1)
    torch.testing.assert_close(part.fit(model, batches).mean, expected)
    margin = explain("input_x_gradient", model, images, torch.ones(10, dtype=torch.long), output="margin").mean(0)
    part = build("global_mean", of="input_x_gradient", magnitude=False, target=1, explained="margin")
    torch.testing.assert_close(part.fit(model, batches).mean, margin)
    torch.testing.assert_close(part.fit(model, [images]).mean, margin)


def test_parameters_reach_the_explainer_and_it_is_fitted(batches):
    model = perceptron()
    images, targets = joined(batches)
    part = build("global_mean", of="pattern_net", parameters={"signal": "linear"}).fit(model, iter(batches))
    inner = build("pattern_net", signal="linear").fit(model, batches)
    torch.testing.assert_close(part.mean, explain(inner, model, images, targets).abs().mean(0))
