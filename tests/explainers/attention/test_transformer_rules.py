"""What the three methods of modified gradients share; each is held to its equations in a file of its own."""

import importlib
import importlib.util
import sys
import types

import pytest
import torch
from generators.planted_transformer import batch, of_timm, of_torchvision, seeded
from oracles.layered import Called
from part_cases import ExplainerCase
from torch import nn

from xaibench.explainers import UnsupportedModelError, explain

METHODS = ("conservative_input_x_gradient", "libragrad", "attnlrp")


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_of_it_without_what_its_rules_are_for(method):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)).double()
    said = rf"^{method}: Sequential has no attention, layer normalization .* Use a transformer .* lrp_gamma\."
    with pytest.raises(UnsupportedModelError, match=said):
        explain(method, network, *batch(), device="cpu")


class Normalizing(nn.Module):
    """A linear layer, a normalization by something, and a linear layer."""

    def __init__(self, by):
        super().__init__()
        self.first, self.by, self.last = nn.Linear(48, 6), by, nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.by(self.first(x[..., ::4, ::4].flatten(1))))


NORMS = {
    "layer": (lambda: nn.LayerNorm(6), lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, False, True) + 1e-5).sqrt()),
    "rms": (lambda: nn.RMSNorm(6), lambda x: x / (x.square().mean(1, keepdim=True) + 2.220446049250313e-16).sqrt()),
    "group": (lambda: nn.GroupNorm(2, 6), lambda x: grouped(x)),
    "unit": (lambda: Called(lambda x: nn.functional.normalize(x, dim=1)), lambda x: x / x.norm(dim=1, keepdim=True)),
}


def grouped(x):
    """Group normalization, written out."""
    parts = x.unflatten(1, (2, 3))
    return ((parts - parts.mean(2, keepdim=True)) / (parts.var(2, False, True) + 1e-5).sqrt()).flatten(1)


@pytest.mark.parametrize("norm", NORMS)
def test_denominators_are_constants(norm):
    """The slope of the network around the image, with the denominator as it is there."""
    build, by_hand = NORMS[norm]
    network = seeded(lambda: Normalizing(build()))
    images, targets = batch()
    maps = explain("conservative_input_x_gradient", network, images, targets, device="cpu")
    hidden = network.first(images[..., ::4, ::4].flatten(1)).detach()
    weight, bias = getattr(network.by, "weight", torch.ones(6)), getattr(network.by, "bias", None)
    normalized = by_hand(hidden)
    torch.testing.assert_close(normalized * weight + (0 if bias is None else bias), network.by(hidden))
    for found, image, h, y, target in zip(maps, images, hidden, normalized, targets.tolist(), strict=True):
        # x minus its mean is linear: y = M h.
        groups = {"layer": [range(6)], "group": [range(3), range(3, 6)]}.get(norm, [])
        centering = torch.eye(6, dtype=h.dtype)
        for group in groups:
            for i in group:
                for j in group:
                    centering[i, j] -= 1 / len(group)
        denominators = (centering @ h) / y
        slope = network.last.weight[target] * weight / denominators @ centering @ network.first.weight
        product = (slope * image[..., ::4, ::4].flatten()).reshape(3, 4, 4).sum(0).detach()
        torch.testing.assert_close(found[::4, ::4], product, rtol=1e-6, atol=1e-9)
    assert maps.abs().max() > 1e-2


class Gated(nn.Module):
    """A product of two branches, as in a gated perceptron, and an activation."""

    def __init__(self, act=None):
        super().__init__()
        self.act, self.left, self.right = act, nn.Linear(48, 5, bias=False), nn.Linear(48, 5, bias=False)
        self.last = nn.Linear(5, 3, bias=False)

    def forward(self, x):
        x = x[..., ::4, ::4].flatten(1)
        return self.last(self.act(self.left(x)) if self.act else self.left(x) * self.right(x))


@pytest.mark.parametrize("act", [None, nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.SiLU(inplace=True), nn.Tanh()])
@pytest.mark.parametrize("method", ["libragrad", "attnlrp"])
def test_products_and_gates_lose_nothing(method, act):
    """Without biases the map sums to the logit, which a plain gradient doubles, or bends."""
    network, (images, targets) = seeded(lambda: Gated(act)), batch()
    own = {"gamma": 0} if method == "attnlrp" else {}
    logits = network(images).gather(1, targets[:, None])[:, 0].detach()
    torch.testing.assert_close(explain(method, network, images, targets, device="cpu", **own).sum((1, 2)), logits)
    plain = explain("input_x_gradient", network, images, targets, device="cpu", output="logit").sum((1, 2))
    assert (plain - logits).abs().max() > 1e-2


def without_constants(model):
    """No biases, and nothing added to the patches."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or name in ("class_token", "encoder.pos_embedding"):
                parameter.zero_()
    return model


@pytest.mark.parametrize(
    ("method", "settings"),
    [("libragrad", {}), ("attnlrp", {"attention_rule": "constant"}), ("conservative_input_x_gradient", {})],
)
def test_the_map_sums_to_the_logit_where_nothing_else_has_a_share(method, settings):
    model, (images, targets) = without_constants(of_torchvision()), batch()
    if method.startswith("conservative"):
        for layer in model.encoder.layers:
            layer.mlp[1] = nn.ReLU()
    logits = model(images).gather(1, targets[:, None])[:, 0].detach()
    assert logits.abs().max() > 0.1
    maps = explain(method, model, images, targets, device="cpu", **settings)
    torch.testing.assert_close(maps.sum((1, 2)), logits, rtol=1e-6, atol=1e-9)


def test_a_gate_at_zero_lets_nothing_through():
    network = seeded(lambda: Gated(nn.GELU()))
    images, targets = batch()
    maps = explain("libragrad", network, torch.zeros_like(images), targets, device="cpu")
    assert maps.eq(0).all()


CASES = {"attnlrp": ExplainerCase(network="generators.networks:Attending")}


def test_gamma_is_the_gamma_rule_of_the_relevance_walk():
    """On what both can treat: the last layers of a transformer, without attention and normalization."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 5, 4, 4), nn.GELU(), nn.Flatten(), nn.Linear(80, 7), nn.GELU(), nn.Linear(7, 3)
        )
    images, targets = batch()
    maps = explain("attnlrp", network.double(), images, targets, device="cpu", gamma=0.3, gamma_convolution=0.3)
    expected = explain("lrp_gamma", network, images, targets, device="cpu", gamma=0.3)
    torch.testing.assert_close(maps, expected, rtol=1e-6, atol=1e-9)


@pytest.fixture
def lxt(monkeypatch):
    """The authors' package without its language models, which ask for transformers."""
    found = importlib.util.find_spec("lxt")
    if found is None:
        pytest.skip("lxt is not installed")
    for name in ("lxt", "lxt.efficient"):
        package = types.ModuleType(name)
        package.__path__ = ["/".join([found.submodule_search_locations[0], *name.split(".")[1:]])]
        monkeypatch.setitem(sys.modules, name, package)
    return types.SimpleNamespace(
        patches=importlib.import_module("lxt.efficient.patches"),
        zennit=importlib.import_module("lxt.efficient.zennit_patches"),
    )


@pytest.mark.parametrize("attention", ["uniform", "constant"])
@pytest.mark.parametrize(("gamma", "gamma_convolution"), [(0, 0), (0.05, 0.25)])
def test_agrees_with_the_authors_package(lxt, monkeypatch, attention, gamma, gamma_convolution):
    from timm.models import vision_transformer
    from zennit.composites import LayerMapComposite
    from zennit.core import BasicHook
    from zennit.rules import Gamma

    model, (images, targets) = of_timm(), batch()
    settings = {"attention_rule": attention, "gamma": gamma, "gamma_convolution": gamma_convolution}
    maps = explain("attnlrp", model, images, targets, device="cpu", **settings)

    fused = vision_transformer.F.scaled_dot_product_attention
    wrap = lxt.patches.wrap_attention_forward if attention == "uniform" else lxt.patches.cp_wrap_attention_forward
    patched = wrap(lambda module, q, k, v: fused(q, k, v))
    monkeypatch.setattr(
        vision_transformer.F, "scaled_dot_product_attention", lambda q, k, v, **_: patched(None, q, k, v)
    )
    monkeypatch.setattr(type(model.norm), "forward", lxt.patches.layer_norm_forward)
    act = type(model.blocks[0].mlp.act)
    monkeypatch.setattr(act, "original_forward", act.forward, raising=False)
    monkeypatch.setattr(act, "forward", lxt.patches.non_linear_forward)
    monkeypatch.setattr(BasicHook, "forward", lxt.zennit.forward)
    monkeypatch.setattr(BasicHook, "backward", lxt.zennit.backward)
    rules = [(nn.Conv2d, Gamma(gamma_convolution, 1e-12)), (nn.Linear, Gamma(gamma, 1e-12))] if gamma else []
    inputs = images.clone().requires_grad_()
    with LayerMapComposite(rules).context(model) as ruled:
        ruled(inputs).gather(1, targets[:, None]).sum().backward()
    expected = (inputs * inputs.grad).sum(1).detach()
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-6 * expected.abs().max().item())
