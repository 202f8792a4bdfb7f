import importlib
import importlib.util
import sys
import types

import pytest
import torch
from generators.planted_transformer import batch, of_timm
from part_cases import ExplainerCase
from torch import nn

from xaibench.explainers import explain

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
