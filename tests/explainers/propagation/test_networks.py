"""The explainers that look inside, on networks of the registry, small and with random weights."""

import copy
import functools

import pytest
import torch

from xaibench.explainers import UnsupportedModelError, explain
from xaibench.models import build


@functools.cache
def network(name, fold, side=64):
    """Made once for all tests, which leave it as it is."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(name, (3, side, side), 2, weights=None, fold=fold)
        head = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)][-1]
        torch.nn.init.normal_(head.weight, std=0.1)  # the vision transformer's starts with zeros
        torch.nn.init.constant_(head.bias, 5.0)  # of a negative logit deep Taylor has no relevance
    # Batch statistics of its own images, as a trained network has them: activations of a healthy scale.
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.train().momentum = None
    with torch.no_grad():
        model(torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(1)))
    return model.eval()


INSIDE = (
    "cam",
    "guided_backprop",
    "deconvolution",
    "guided_gradcam",
    "deeplift",
    "deep_shap",
    "lrp_epsilon",
    "deep_taylor",
)


@pytest.mark.parametrize(("name", "fold"), [("resnet18", "pet"), ("densenet121", None), ("efficientnet_lite0", "pet")])
def test_relu_networks_are_explained_by_all(name, fold):
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    model = network(name, fold)
    images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(2)).expand(2, -1, -1, -1)
    for explainer in INSIDE:
        maps = explain(explainer, model, images, torch.tensor([0, 1]), device="cpu")
        assert maps.shape == (2, 64, 64)
        assert max(m.std() for m in maps) > 0, explainer
        assert not torch.allclose(*maps), explainer


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "efficientnet_lite0", "efficientnet_b0"])
def test_deeplift_sums_to_the_difference(name):
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    model = copy.deepcopy(network(name, None, side=32)).double()
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    target = torch.tensor([1])
    maps = explain(
        "deeplift", model, images, target, output="logit", max_pool="difference", dtype=torch.float64, device="cpu"
    )
    expected = (model(images) - model(torch.zeros_like(images)))[0, 1].detach()
    torch.testing.assert_close(maps.sum(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "explainer", "message"),
    [
        ("efficientnet_b0", "guided_backprop", r"\(Sigmoid\) is not a ReLU .* saliency"),
        ("efficientnet_b0", "lrp_epsilon", r"layer 'network.features.1.0.block.1' \(SqueezeExcitation\): .* mul"),
        ("vit_b_16", "lrp", r"\(LayerNorm\) has no propagation rule.* lrp_epsilon"),
        ("vit_b_16", "cam", r"are not the means of layer .* gradcam"),
        ("resnet18", "lrp", r"\(BasicBlock\) calls add_ itself.* lrp_epsilon"),
        ("resnet18", "attention_rollout", r"has no attention: .* gradcam or rise"),
    ],
)
def test_a_refusal_names_the_layer_and_what_works(name, explainer, message):
    with pytest.raises(UnsupportedModelError, match=message):
        explain(explainer, network(name, None, side=32), torch.rand(1, 3, 32, 32), torch.tensor([0]), device="cpu")


def test_a_vision_transformer_is_explained_by_gradcam_and_rollout():
    model = network("vit_b_16", None, side=32)
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    rollout = explain("attention_rollout", model, images, torch.tensor([0]), device="cpu")
    assert rollout.std() > 0
    maps = [explain("gradcam", model, images, torch.tensor([target]), device="cpu") for target in (0, 1)]
    assert max(m.std() for m in maps) > 0
