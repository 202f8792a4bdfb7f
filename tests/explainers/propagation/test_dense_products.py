"""A dense layer that is written as a product with a matrix has the maps of ``nn.Linear``."""

import pytest
import torch
from torch import nn

import xaibench as xb

IMAGES = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
RULES = [
    ("lrp_epsilon", {}),
    ("lrp_epsilon", {"epsilon": 0.1, "input_rule": "zB", "low": 0.0, "high": 1.0}),
    ("lrp_gamma", {}),
    ("lrp_alpha_beta", {}),
    ("deep_taylor", {"input_rule": "w2"}),
    ("deep_taylor", {"bias": True}),
    ("deeplift", {}),
    ("guided_backprop", {}),
]


def added_in_place(x, weight, bias):
    y = torch.mm(x, weight)
    y += bias
    return y


FORMS = {
    "operator": lambda x, weight, bias: x @ weight + bias,
    "row": lambda x, weight, bias: bias[None] + torch.matmul(x, other=weight),
    "addmm": lambda x, weight, bias: torch.addmm(bias, x, weight),
    "in place": added_in_place,
}


class Product(nn.Module):
    def __init__(self, layer, form):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.detach().T), nn.Parameter(layer.bias.detach())
        self.form = FORMS[form]

    def forward(self, x):
        return self.form(x, self.weight, self.bias)


def pair(form, make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Linear(48, 8), nn.Linear(8, 3)
    twin = make(*layers).double().eval()
    return make(*(Product(layer, form) for layer in layers)).double().eval(), twin


@pytest.mark.parametrize(("name", "parameters"), RULES)
@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_a_linear_layer(name, parameters, form):
    network, twin = pair(form, lambda one, two: nn.Sequential(nn.Flatten(), one, nn.ReLU(), two))
    maps, expected = (xb.explain(name, one, IMAGES, [0, 1, 2], **parameters) for one in (network, twin))
    torch.testing.assert_close(maps, expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().max() > 0


def test_a_batch_normalization_belongs_to_the_product_before():
    def make(one, two):
        norm = nn.BatchNorm1d(8)
        norm.running_mean, norm.running_var = torch.linspace(-1, 1, 8), torch.linspace(0.5, 2, 8)
        return nn.Sequential(nn.Flatten(), one, norm, nn.ReLU(), two)

    network, twin = pair("operator", make)
    for name in ("lrp_epsilon", "lrp_gamma"):
        maps, expected = (xb.explain(name, one, IMAGES, [0, 1, 2]) for one in (network, twin))
        torch.testing.assert_close(maps, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["attnlrp", "pattern_net"])
def test_products_of_tokens_and_with_patterns(name):
    class Tokens(nn.Module):
        def __init__(self, one, two):
            super().__init__()
            self.one, self.two, self.norm = one, two, nn.LayerNorm(8)

        def forward(self, x):
            return self.two(self.norm(self.one(x.flatten(1))[:, None]).mean(1) if name == "attnlrp" else self.flat(x))

        def flat(self, x):
            return self.one(x.flatten(1)).relu()

    network, twin = pair("operator", Tokens)
    explainers = [xb.explainers.EXPLAINERS.resolve(name)() for _ in range(2)]
    if name == "pattern_net":
        explainers = [part.fit(one, [IMAGES]) for part, one in zip(explainers, (network, twin), strict=True)]
    maps, expected = (xb.explain(*pair, IMAGES, [0, 1, 2]) for pair in zip(explainers, (network, twin), strict=True))
    torch.testing.assert_close(maps, expected, rtol=1e-6, atol=1e-9)


def test_a_matrix_before_the_image_and_a_vector():
    """The layer acts on the rows of the image; the vector is a layer with one output."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.vector = nn.Parameter(torch.linspace(-1, 1, 20).reshape(5, 4)), torch.linspace(-1, 2, 60)

        def forward(self, x):
            return (self.rows @ x).relu().flatten(1) @ self.vector.to(x)

    network = Rows().double()
    x = IMAGES.clone().requires_grad_()
    network(x).sum().backward()
    maps = xb.explain("lrp_epsilon", network, IMAGES, [0] * 3, output="logit", epsilon=0.0)
    torch.testing.assert_close(maps, (x.grad * IMAGES).sum(1), rtol=1e-6, atol=1e-9)
