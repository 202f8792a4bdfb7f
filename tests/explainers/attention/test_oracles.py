"""Every explainer of transformers computes the equations of its paper, of networks of either library."""

import numpy as np
import pytest
from generators.planted_transformer import batch, of_timm, of_torchvision
from oracles import transformer as oracle

from xaibench.explainers import explain


def relevance(**equations):
    return lambda *asked: oracle.relevance(*asked, **equations).sum(0)


#: Name, parameters, and what it has to be.
EXPECTED = [
    ("attention_x_gradient", {"resize": None}, oracle.attention_x_gradient),
    ("gradient_rollout", {"resize": None}, oracle.gradient_rollout),
    ("legrad", {"resize": None}, oracle.legrad),
    ("conservative_input_x_gradient", {}, relevance(attention="constant", gate="gradient")),
    ("libragrad", {}, relevance(attention="constant")),
    ("attnlrp", {}, relevance(gamma=0.05, gamma_convolution=0.25)),
    ("attnlrp", {"gamma": 0, "gamma_convolution": 0}, relevance()),
    (
        "attnlrp",
        {"attention_rule": "constant", "gamma": 1},
        relevance(attention="constant", gamma=1, gamma_convolution=0.25),
    ),
]


@pytest.mark.parametrize("build", [of_torchvision, of_timm])
@pytest.mark.parametrize(("name", "parameters", "equations"), EXPECTED)
def test_oracle(build, name, parameters, equations):
    model, (images, targets) = build(), batch(n=2)
    net = oracle.weights_of(model, heads=2)
    maps = explain(name, model, images, targets, device="cpu", **parameters)
    for found, image, target in zip(maps, images.numpy(), targets.tolist(), strict=True):
        expected = equations(net, image, target)
        largest = np.abs(expected).max()
        assert largest > 1e-4
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-7 * largest)
