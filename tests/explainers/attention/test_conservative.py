import numpy as np
import pytest
from generators.planted_transformer import batch, of_timm, of_torchvision
from oracles import transformer as oracle
from part_cases import ExplainerCase

from xaibench.explainers import explain

CASES = {"conservative_input_x_gradient": ExplainerCase(network="generators.networks:Attending")}


@pytest.mark.parametrize("build", [of_torchvision, of_timm])
def test_oracle(build):
    model, (images, targets) = build(), batch(n=2)
    net = oracle.weights_of(model, heads=2)
    maps = explain("conservative_input_x_gradient", model, images, targets, device="cpu")
    for found, image, target in zip(maps, images.numpy(), targets.tolist(), strict=True):
        expected = oracle.relevance(net, image, target, attention="constant", gate="gradient").sum(0)
        assert np.abs(expected).max() > 1e-4
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
