import itertools

import numpy as np
import pytest
import torch
from oracles import layered
from oracles import pattern as oracle
from oracles.layered import as_layers, cnn, made
from part_cases import ExplainerCase
from refusals import refused
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import xaibench as xb
from xaibench.explainers import UnsupportedModelError
from xaibench.explainers.propagation.pattern_net import (
    NotFittedForModelError,
    PatternAttribution,
    PatternNet,
)
from xaibench.models import Folded

#: They compare the patterns of each layer with its weights.
CASES = {name: ExplainerCase(waits=3) for name in ("pattern_net", "pattern_attribution")}


def mlp(bias=True):
    return layered.mlp(bias, inputs=16)


def data(build, n=24, seed=1):
    channels, size = (2, 6) if build is cnn else (1, 4)
    rng = torch.Generator().manual_seed(seed)
    images = torch.randn(n, channels, size, size, generator=rng, dtype=torch.float64)
    return images, torch.arange(n) % 3


def suppressor():
    """Images a s + d e, every signal s with every distractor e; weights that read s off them: w a = 1, w d = 0."""
    a, d = torch.tensor([1.0, 0.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, -1.0, 3.0])
    w = torch.tensor([1.0, -0.5, 0.0, -1 / 6])
    pairs = torch.tensor(list(itertools.product([-2.0, -1.0, 1.0, 2.0], [-3.0, -1.0, 1.0, 3.0])))
    images = (pairs[:, :1] * a + pairs[:, 1:] * d).double().reshape(-1, 1, 2, 2)
    return a.double(), w.double(), images, pairs[:, 0].double()


@pytest.mark.parametrize("signal", ["linear", "two_component"])
def test_a_linear_network_gives_the_signal_without_the_distractor(signal):
    a, w, images, s = suppressor()
    network = made(nn.Flatten(), nn.Linear(4, 2))
    network[1].weight.data = torch.stack([w, -3 * w])
    targets = torch.zeros(len(images), dtype=torch.int64)
    network[1].bias.data = torch.tensor([0.5, 0.0], dtype=torch.float64)  # less than any |s|: it changes no sign
    net = PatternNet(signal=signal).fit(network, [images])
    attribution = PatternAttribution(signal=signal).fit(network, [images])
    torch.testing.assert_close(net.patterns["1"], torch.stack([a, -a / 3]))

    sign = s.sign()[:, None]
    maps = xb.explain(net, network, images, targets, device="cpu").flatten(1)
    torch.testing.assert_close(maps, sign * a)
    maps = xb.explain(attribution, network, images, targets, device="cpu").flatten(1)
    torch.testing.assert_close(maps, sign * (w * a))
    # The gradient, for comparison, points at the distractor as well.
    assert w[1] != 0
    assert a[1] == 0


def test_two_layers_project_the_signal_of_the_active_neuron():
    a, w, images, s = suppressor()
    network = made(nn.Flatten(), nn.Linear(4, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    network[1].weight.data = torch.stack([w, -w])
    network[3].weight.data = torch.tensor([[2.0, -4.0]], dtype=torch.float64)
    fitted = PatternNet().fit(network, [images])
    torch.testing.assert_close(fitted.patterns["1"], torch.stack([a, -a]))
    # f = 2 relu(s) - 4 relu(-s). It is positive where only the first neuron is active, and there E+[h y] = (2 s², 0),
    # E+[h] = (s, 0) with s = 1 or 2, so the pattern is (p, 0) / (2 p).
    torch.testing.assert_close(fitted.patterns["3"], torch.tensor([[0.5, 0.0]], dtype=torch.float64))
    targets = torch.zeros(len(images), dtype=torch.int64)
    maps = xb.explain(fitted, network, images, targets, output="logit", device="cpu").flatten(1)
    torch.testing.assert_close(maps, torch.where(s[:, None] > 0, 0.5 * a, 0 * a))


@pytest.mark.parametrize("signal", ["linear", "two_component"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("build", [mlp, cnn])
def test_agrees_with_the_slow_version(build, bias, signal):
    network, (images, targets) = build(bias), data(build)
    layers = as_layers(network)
    expected = oracle.patterns(layers, images.numpy(), signal)
    weights = [layer[1] for layer in layers if layer[0] in ("linear", "conv")]
    net = PatternNet(signal=signal, channels="sum").fit(network, [images[:10], images[10:]])
    for found, wanted in zip(net.patterns.values(), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-8, atol=1e-10)
    attribution = PatternAttribution(signal=signal, patterns=net.patterns)
    both = [w * a for w, a in zip(weights, expected, strict=True)]
    images, targets = images[:6], targets[:6]
    for explainer, replaced in ((net, expected), (attribution, both)):
        maps = xb.explain(explainer, network, images, targets, device="cpu")
        wanted = [
            oracle.project(layers, replaced, x.numpy(), t).sum(0) for x, t in zip(images, targets.tolist(), strict=True)
        ]
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(maps.numpy(), wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("build", [mlp, cnn])
def test_any_batches_give_the_same_patterns(build):
    network, (images, targets) = build().train(), data(build)
    whole = PatternNet().fit(network, [images]).patterns
    masks = torch.zeros(len(images), *images.shape[2:], dtype=torch.bool)
    loaders = {
        "masks": DataLoader(TensorDataset(images, masks, targets), batch_size=7),
        "targets": DataLoader(TensorDataset(images, targets), batch_size=24),
        "alone": (part for part in images.split(5)),
    }
    for loader in loaders.values():
        for name, pattern in PatternNet(batch_size=3).fit(network, loader).patterns.items():
            torch.testing.assert_close(pattern, whole[name], rtol=1e-9, atol=1e-11)
    assert network.training


def test_every_pattern_answers_its_weight_with_one():
    network, (images, _) = cnn(), data(cnn)
    network[0].bias.data[1] = -1e6  # never active
    patterns = PatternAttribution().fit(network, [images]).patterns
    assert (patterns["0"][1] == 0).all()
    for name, pattern in patterns.items():
        response = (network.get_submodule(name).weight * pattern).flatten(1).sum(1)
        alive = pattern.flatten(1).any(1)
        assert alive.sum() >= 2
        torch.testing.assert_close(response, alive.double())


def test_a_neuron_that_never_varies_has_no_pattern():
    network = made(nn.Flatten(), nn.Linear(4, 2))
    network[1].weight.data[:, 1:] = 0
    images = torch.randn(9, 1, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    images[:, 0, 0, 0] = 0.1
    assert (PatternNet(signal="linear").fit(network, [images]).patterns["1"] == 0).all()


def test_small_networks_are_fitted_in_float64():
    network, (images, targets) = mlp().float(), data(mlp)
    network.explain_dtype = torch.float64
    fitted = PatternNet().fit(network, [images.float()])
    assert network[1].weight.dtype == torch.float32
    exact = PatternNet().fit(mlp().float().double(), [images.float().double()])
    for name, pattern in fitted.patterns.items():
        torch.testing.assert_close(pattern, exact.patterns[name], rtol=0, atol=0)
    assert xb.explain(fitted, network, images.float(), targets, device="cpu").dtype == torch.float64


def test_batch_normalization_belongs_to_the_layer_before():
    network = made(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)).eval()
    network[1].running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    network[1].running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    folded = nn.Sequential(nn.utils.fusion.fuse_conv_bn_eval(network[0], network[1]), nn.Identity(), *network[2:])
    images, targets = data(cnn)
    found, expected = (PatternNet().fit(n, [images]) for n in (network, folded))
    torch.testing.assert_close(found.patterns["0"], expected.patterns["0"])
    maps = xb.explain(found, network, images, targets, device="cpu")
    torch.testing.assert_close(maps, xb.explain(expected, folded, images, targets, device="cpu"))


def test_it_must_be_fitted_to_the_network_that_it_explains():
    network, (images, targets) = mlp(), data(mlp)
    fitted = PatternNet().fit(network, [images])
    other = made(nn.Flatten(), nn.Linear(16, 9), nn.ReLU(), nn.Dropout(0.5), nn.Linear(9, 3))
    refused(NotFittedForModelError, "", lambda: xb.explain(fitted, other, images, targets, device="cpu"))
    renamed = nn.Sequential(nn.Sequential(*network))
    refused(NotFittedForModelError, "", lambda: xb.explain(fitted, renamed, images, targets, device="cpu"))
    network[4].weight.data += 0.1
    refused(NotFittedForModelError, "", lambda: xb.explain(fitted, network, images, targets, device="cpu"))


def test_only_relu_networks_have_patterns():
    network = made(nn.Flatten(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3)).train()
    images, _ = data(mlp)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    refused(UnsupportedModelError, "", lambda: PatternNet().fit(network, [images]))
    assert network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    for module in network.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("method", [PatternNet, PatternAttribution])
def test_classes_taken_together_share_the_signal_and_relu6_is_a_relu(method):
    """The signal starts at each member with the sign of its logit, by its share of the group."""
    network = made(nn.Flatten(), nn.Linear(16, 9), nn.ReLU6(), nn.Linear(9, 5))
    images = torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    groups = {"a": [0, 3], "b": [1, 2, 4]}
    fitted = method(channels="sum").fit(network, [images])
    together = method(channels="sum").fit(Folded(network, groups), [images])
    x = images[:2]
    found = together(Folded(network, groups), x, torch.tensor([1, 1]))
    shares = network(x)[:, groups["b"]].softmax(1).detach()
    each = [fitted(network, x, torch.tensor([j, j])) for j in groups["b"]]
    expected = sum(share[:, None, None] * map_ for share, map_ in zip(shares.T, each, strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert found.abs().max() > 1e-3
