import numpy as np
import pytest
from generators.planted_transformer import batch, of_timm, of_torchvision, swin_of_timm, swin_of_torchvision
from oracles import transformer as oracle
from part_cases import ExplainerCase

from xaibench.explainers import UnsupportedModelError, explain

CASES = {"gradient_rollout": ExplainerCase(network="generators.networks:Attending")}


@pytest.mark.parametrize("build", [of_torchvision, of_timm])
def test_oracle(build):
    model, (images, targets) = build(), batch(n=2)
    net = oracle.weights_of(model, heads=2)
    maps = explain("gradient_rollout", model, images, targets, device="cpu", resize=None)
    assert maps.shape == (2, 2, 2)
    for found, image, target in zip(maps, images.numpy(), targets.tolist(), strict=True):
        expected = oracle.gradient_rollout(net, image, target)
        assert np.abs(expected).max() > 1e-4
        np.testing.assert_allclose(found.flatten(), expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("build", [swin_of_torchvision, swin_of_timm])
def test_windows_are_an_error(build):
    with pytest.raises(UnsupportedModelError, match=r"^gradient_rollout: .* windows; .* same tokens in every layer"):
        explain("gradient_rollout", build(), *batch(32), device="cpu")
