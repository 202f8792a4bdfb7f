import numpy as np
import pytest
import torch
from oracles.propagation import relevance
from torch import nn

import xaibench as xb
from xaibench.explainers.propagation.crp import CRP
from xaibench.explainers.propagation.lrp import LayerwiseRelevance
from xaibench.models import Wrapped

RULES = {
    "epsilon": {"epsilon": 0.1},
    "gamma": {"gamma": 0.4},
    "alpha_beta": {"alpha": 2.0, "beta": 1.0},
    "z+": {},
}


def network(bias=True):
    """Two convolutions of three and four channels, the second with nine outputs each, and a linear layer."""
    layers = nn.Conv2d(2, 3, 2, bias=bias), nn.ReLU(), nn.Conv2d(3, 4, 3, bias=bias), nn.ReLU()
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 3, bias=bias)).double().eval()
    rng = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) / parameter[0].numel() ** 0.5
    return model


def data(n=4):
    rng = torch.Generator().manual_seed(1)
    return torch.rand(n, 2, 6, 6, generator=rng, dtype=torch.float64) * 2 - 1, torch.arange(n) % 3


def as_layers(model):
    first, second, last = ([value.detach().numpy() for value in (model[i].weight, model[i].bias)] for i in (0, 2, 5))
    return [("conv", *first, 1, 0), ("relu",), ("conv", *second, 1, 0), ("relu",), ("flatten",), ("linear", *last)]


def keep(channels, number):
    """Zeros outside these channels of so many."""

    def change(result):
        rows = result.reshape(number, -1).copy()
        for k in range(number):
            if k not in channels:
                rows[k] = 0
        return rows.reshape(-1)

    return change


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("layer", "number", "index"), [("0", 3, 0), ("2", 4, 1), ("5", 3, 2)])
def test_oracle(rule, layer, number, index):
    model, (images, targets) = network(), data()
    part = CRP(rule=rule, layer=layer, concepts=(0, 2), **RULES[rule])
    maps = xb.explain(part, model, images, targets, device="cpu")
    expected = [
        relevance(
            as_layers(model), image.numpy(), target, [rule] * 3, condition=(index, keep((0, 2), number)), **RULES[rule]
        ).sum(0)
        for image, target in zip(images, targets.tolist(), strict=True)
    ]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(maps.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("layer", "number"), [("0", 3), ("2", 4)])
def test_the_channels_of_a_layer_sum_to_the_unconditional_map(rule, layer, number):
    model, (images, targets) = network(), data()
    parts = [CRP(rule=rule, layer=layer, concepts=(k,))(model, images, targets) for k in range(number)]
    expected = LayerwiseRelevance(rule=rule)(model, images, targets)
    torch.testing.assert_close(sum(parts), expected)
    together = CRP(rule=rule, layer=layer, n_concepts=9)(model, images, targets)
    torch.testing.assert_close(together, expected)


def test_without_biases_a_map_sums_to_the_relevance_of_its_channel():
    model, (images, targets) = network(bias=False), data()
    features = model[:4](images).detach().requires_grad_()
    logits = model[4:](features).gather(1, targets[:, None])
    (gradient,) = torch.autograd.grad(logits.sum(), features)
    by_channel = (features * gradient).sum((2, 3)).detach()
    for k in range(4):
        found = CRP(epsilon=1e-12, concepts=(k,))(model, images, targets).sum((1, 2))
        torch.testing.assert_close(found, by_channel[:, k])
    # By default it is the largest, which is another channel in other images.
    default = CRP(epsilon=1e-12)(model, images, targets).sum((1, 2))
    torch.testing.assert_close(default, by_channel.amax(1))
    assert len(set(by_channel.argmax(1).tolist())) > 1


class Branches(nn.Module):
    """A layer that half of the relevance bypasses, called twice, with a batch normalization."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)
        self.again, self.last = nn.Conv2d(3, 3, 1), nn.Linear(3, 3)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = x + self.again(self.again(x).relu()).relu()
        return self.last(x.mean((2, 3)))


def test_what_bypasses_a_layer_is_in_none_of_its_channels():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Branches().double().eval()
        model.norm.running_var.uniform_(0.5, 2.0)
    images, targets = data()
    whole = LayerwiseRelevance()(model, images, targets)
    # Everything flows through the first layer, with its normalization; the other is reached by one of two branches.
    torch.testing.assert_close(CRP(layer="first", n_concepts=3)(model, images, targets), whole)
    through = CRP(layer="again", n_concepts=3)(model, images, targets)
    assert through.any()
    assert not through.allclose(whole)
    model.again.weight.data.zero_(), model.again.bias.data.zero_()
    assert not CRP(layer="again", n_concepts=3)(model, images, targets).any()


def test_the_layer_may_be_the_module_and_the_default_is_the_last_convolution():
    model, (images, targets) = network(), data()
    expected = CRP(layer="2")(model, images, targets)
    assert CRP()(model, images, targets).equal(expected)
    assert CRP(layer=model[2])(model, images, targets).equal(expected)
    assert xb.explain("crp", model, images, targets, layer=model[2], device="cpu").allclose(expected)


def test_a_layer_of_tokens_has_its_channels_last():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(12, 5), nn.Linear(5, 3)).double()
    model = Wrapped(layers, lambda layers, x: layers[1](layers[0](x.permute(0, 2, 1, 3).flatten(2)).relu().mean(1)))
    images, targets = data()
    parts = [CRP(layer="network.0", concepts=(k,))(model, images, targets) for k in range(5)]
    torch.testing.assert_close(sum(parts), LayerwiseRelevance()(model, images, targets))
