import numpy as np
import pytest
import torch
from oracles.layered import as_layers, cnn, made, mlp
from oracles.propagation import relevance
from part_cases import ExplainerCase
from torch import nn
from torch.nn import functional

import xaibench as xb
from xaibench.explainers.propagation.lrp import DeepTaylor, LayerwiseRelevance, LRPAlphaBeta, LRPEpsilon, LRPGamma
from xaibench.models import Folded

#: They look at each layer: whether it has inputs below zero.
CASES = {
    "deep_taylor": ExplainerCase(waits=4),
    "lrp_gamma": ExplainerCase(waits=6),
    "lrp_alpha_beta": ExplainerCase(waits=6),
}


def cnn_of_volumes(bias=True):
    return made(
        nn.Conv3d(2, 2, 2, padding=1, bias=bias), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(2, 3, 2, stride=2, padding=1, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3, bias=bias),
    )  # fmt: skip


def data(size, n=6, channels=2, seed=1):
    rng = torch.Generator().manual_seed(seed)
    sides = (size, size) if isinstance(size, int) else size
    images = torch.rand(n, channels, *sides, generator=rng, dtype=torch.float64) * 2 - 1
    return images, torch.arange(n) % 3


def explained(explainer, network, images, targets):
    return xb.explain(explainer, network, images, targets, device="cpu")


def logits_of(network, images, targets):
    return network.eval()(images).gather(1, targets[:, None]).squeeze(1).detach()


NETWORKS = [
    pytest.param(mlp, 3, id="mlp"),
    pytest.param(cnn, 6, id="cnn"),
    pytest.param(cnn_of_volumes, (4, 5, 4), id="volumes"),
]
RULES = {
    "epsilon": (LRPEpsilon(epsilon=0.1), ["epsilon"] * 3, {"epsilon": 0.1}),
    "epsilon without bias": (LRPEpsilon(epsilon=0.1, bias=False), ["epsilon"] * 3, {"epsilon": 0.1, "bias": False}),
    "gamma": (LRPGamma(gamma=0.4), ["gamma"] * 3, {"gamma": 0.4}),
    "alpha-beta": (LRPAlphaBeta(), ["alpha_beta"] * 3, {"alpha": 2, "beta": 1}),
    "alpha-beta without bias": (
        LRPAlphaBeta(alpha=1.5, beta=0.5, bias=False),
        ["alpha_beta"] * 3,
        {"alpha": 1.5, "beta": 0.5, "bias": False},
    ),
    "z+": (LayerwiseRelevance(rule="z+"), ["z+"] * 3, {}),
    "deep Taylor": (DeepTaylor(), ["z+"] * 3, {"bias": False, "positive_start": True}),
    "deep Taylor zB": (
        DeepTaylor(input_rule="zB", low=-1.0, high=1.5),
        ["zB", "z+", "z+"],
        {"bias": False, "positive_start": True, "low": -1.0, "high": 1.5},
    ),
    "deep Taylor w2": (DeepTaylor(input_rule="w2"), ["w2", "z+", "z+"], {"bias": False, "positive_start": True}),
    # The second linear layer is the fourth module of the CNN and the fifth of the MLP.
    "mixed": (
        LRPEpsilon(epsilon=0.1, input_rule="w2", rules={"[34]": "z+"}),
        ["w2", "z+", "epsilon"],
        {"epsilon": 0.1},
    ),
}


@pytest.mark.parametrize(("build", "size"), NETWORKS)
@pytest.mark.parametrize("name", RULES)
def test_agrees_with_the_slow_version(build, size, name):
    explainer, rules, parameters = RULES[name]
    network, (images, targets) = build(), data(size)
    maps = explained(explainer, network, images, targets)
    expected = [
        relevance(as_layers(network), image.numpy(), target, rules, **parameters).sum(0)
        for image, target in zip(images, targets.tolist(), strict=True)
    ]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(maps.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_relevance_passes_through_normalizations_and_upsampling_of_volumes():
    network = made(
        nn.Conv3d(2, 4, 2, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.Upsample(scale_factor=2, mode="trilinear"),
        nn.Conv3d(4, 2, 3, bias=False), nn.InstanceNorm3d(2), nn.ReLU(), nn.Flatten(), nn.Linear(192, 3, bias=False),
    )  # fmt: skip
    images, targets = data((4, 5, 4))
    maps = explained(LRPEpsilon(epsilon=0), network, images, targets)
    torch.testing.assert_close(maps.flatten(1).sum(1), logits_of(network, images, targets), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("build", "size"), NETWORKS)
@pytest.mark.parametrize(
    ("explainer", "positive"),
    [
        (LRPEpsilon(epsilon=0), False),
        (LRPGamma(), False),
        (DeepTaylor(), True),
        (DeepTaylor(input_rule="zB", low=-1.0, high=1.0), True),
        (DeepTaylor(input_rule="w2"), True),
    ],
)
def test_relevance_is_conserved_without_biases(build, size, explainer, positive):
    network, (images, targets) = build(bias=False), data(size)
    logits = logits_of(network, images, targets)
    maps = explained(explainer, network, images, targets)
    sums = maps.flatten(1).sum(1)
    torch.testing.assert_close(sums, logits.clamp(min=0) if positive else logits, rtol=0, atol=1e-5)
    assert logits.abs().max() > 0.1
    if positive:
        assert maps.min() >= 0
        assert (maps[logits <= 0] == 0).all()


def test_alpha_beta_conserves_where_both_signs_contribute():
    network = made(nn.Flatten(), nn.Linear(12, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False))
    network[3].weight.data = torch.tensor([[1.0, -2.0] * 3, [-1.0, 0.5] * 3], dtype=torch.float64)
    # Duplicated neurons: whichever of the hidden ones are active, some have a positive and some a negative weight.
    network[1].weight.data[1::2] = network[1].weight.data[::2]
    images, targets = torch.randn(5, 3, 2, 2, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0])
    for alpha, beta in ((2.0, 1.0), (1.5, 0.5)):
        maps = explained(LRPAlphaBeta(alpha=alpha, beta=beta), network, images, targets)
        torch.testing.assert_close(maps.sum((1, 2)), logits_of(network, images, targets), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "explainer", [LRPEpsilon(epsilon=1e-9), LRPGamma(), DeepTaylor(), LRPAlphaBeta(alpha=1.0, beta=0.0)]
)
def test_branches_and_averages_conserve(explainer):
    network, images, targets = Residual().double(), *data(8)
    logits = logits_of(network, images, targets)
    expected = logits.clamp(min=0) if isinstance(explainer, DeepTaylor) else logits
    torch.testing.assert_close(explained(explainer, network, images, targets).sum((1, 2)), expected, rtol=0, atol=1e-5)


class Residual(nn.Module):
    """Everything as a function where it can be one, in place where it can be."""

    def __init__(self):
        super().__init__()
        rng = torch.Generator().manual_seed(3)
        self.first = nn.Parameter(torch.randn(4, 2, 3, 3, generator=rng))
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.second.weight.data = torch.randn(4, 4, 3, 3, generator=rng)
        self.last = nn.Parameter(torch.randn(3, 4, generator=rng))

    def forward(self, x):
        x = functional.relu(functional.conv2d(x, self.first, padding=1), inplace=True)
        y = self.second(x).relu_()
        y = self.second(y).relu()
        y += x
        y = functional.max_pool2d(functional.avg_pool2d(y, 2), 2) + 0
        return functional.linear(torch.flatten(functional.dropout(y, 0.5, self.training).mean((2, 3)), 1), self.last)


def test_closed_forms():
    linear = made(nn.Flatten(), nn.Linear(4, 2, bias=False))
    images, targets = data(2, channels=1)
    targets = targets % 2
    weights = linear[1].weight.detach()[targets].reshape(-1, 2, 2)
    torch.testing.assert_close(explained(LRPEpsilon(epsilon=0), linear, images, targets), weights * images[:, 0])

    # f = relu(x1 + x2) + relu(x1 - x2): at x = (3, 1) two active neurons, of 4 and 2.
    two = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    two[1].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    two[3].weight.data = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    x, target = torch.tensor([3.0, 1.0], dtype=torch.float64).reshape(1, 1, 1, 2), torch.tensor([0])

    def at(explainer):
        return explained(explainer, two, x, target).flatten().tolist()

    assert at(DeepTaylor()) == pytest.approx([3 + 2, 1])
    assert at(DeepTaylor(input_rule="w2")) == pytest.approx([2 + 1, 2 + 1])
    # zB with 0 <= x <= 4: the second neuron's terms are 3 and -1 + 4 = 3.
    assert at(DeepTaylor(input_rule="zB", low=0.0, high=4.0)) == pytest.approx([3 + 1, 1 + 1])
    assert at(LRPEpsilon(epsilon=0)) == pytest.approx([3 + 3, 1 - 1])
    # Alpha 2 doubles what the last layer passes on, 8 and 4, because nothing in it is negative.
    assert at(LRPAlphaBeta()) == pytest.approx([2 * (6 + 4), 2 * 2 - 4])
    assert at(LRPGamma(gamma=1.0)) == pytest.approx([3 + 6 / 5 * 2, 1 - 1 / 5 * 2])


@pytest.mark.parametrize(("build", "size"), NETWORKS)
def test_epsilon_zero_is_input_times_gradient_in_relu_networks(build, size):
    network, (images, targets) = build(), data(size)
    inputs = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network.eval()(inputs).gather(1, targets[:, None]).sum(), inputs)
    maps = explained(LRPEpsilon(epsilon=0), network, images, targets)
    torch.testing.assert_close(maps, (gradient * images).sum(1), rtol=1e-8, atol=1e-10)


def zennit_rules():
    rules = pytest.importorskip("zennit.rules")
    tiny = 1e-12
    bounds = {"low": -torch.ones(1, 1, 1, 1), "high": torch.ones(1, 1, 1, 1)}
    return {
        "epsilon": (LRPEpsilon(epsilon=1e-3), lambda: rules.Epsilon(1e-3), None),
        "gamma": (LRPGamma(gamma=0.3), lambda: rules.Gamma(0.3, tiny), None),
        "alpha-beta": (LRPAlphaBeta(), lambda: rules.AlphaBeta(2.0, 1.0, tiny), None),
        "z+": (LayerwiseRelevance(rule="z+", bias=False), lambda: rules.ZPlus(tiny, zero_params="bias"), None),
        "zB": (
            LayerwiseRelevance(rule="z+", bias=False, input_rule="zB", low=-1.0, high=1.0),
            lambda: rules.ZPlus(tiny, zero_params="bias"),
            lambda: rules.ZBox(**bounds, stabilizer=tiny, zero_params="bias"),
        ),
        "w2": (
            LayerwiseRelevance(rule="z+", bias=False, input_rule="w2"),
            lambda: rules.ZPlus(tiny, zero_params="bias"),
            lambda: rules.WSquare(tiny, zero_params="bias"),
        ),
    }


@pytest.mark.parametrize("name", ["epsilon", "gamma", "alpha-beta", "z+", "zB", "w2"])
@pytest.mark.parametrize("normalized", [False, True])
def test_agrees_with_zennit(name, normalized):
    explainer, inner, first = zennit_rules()[name]
    from zennit.attribution import Gradient
    from zennit.canonizers import SequentialMergeBatchNorm
    from zennit.composites import NameLayerMapComposite
    from zennit.rules import Norm, Pass

    network = made(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5, eps=1e-12) if normalized else nn.Identity(), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(5, 6, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 3),
    ).eval()  # fmt: skip
    if normalized:
        network[1].running_mean.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(5))
        network[1].running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(6))
    images, targets = data(6)
    maps = explained(explainer, network, images, targets)

    composite = NameLayerMapComposite(
        name_map=[(["0"], (first or inner)()), (["4", "8"], inner())],
        layer_map=[(nn.ReLU, Pass()), (nn.AvgPool2d, Norm(1e-12))],
        canonizers=[SequentialMergeBatchNorm()],
    )
    chosen = functional.one_hot(targets, 3).double()
    try:
        with Gradient(network, composite) as attributor:
            _, expected = attributor(images, lambda logits: chosen * logits.detach())
    except ValueError as error:
        if "eps must be positive" not in str(error):
            raise
        pytest.skip("zennit sets the eps of a batch normalization to 0, which this torch does not take")
    assert expected.abs().max() > 1e-2
    # zennit leaves out the eps of a batch normalization, so it is next to nothing here.
    torch.testing.assert_close(maps, expected.sum(1).detach(), rtol=1e-7, atol=1e-9)


def test_batch_normalization_is_folded_into_the_layer_before():
    network = made(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5),
        nn.BatchNorm1d(5, affine=False), nn.ReLU(), nn.Linear(5, 3),
    ).eval()  # fmt: skip
    for norm in (network[1], network[5]):
        norm.running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
        norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    folded = nn.Sequential(
        nn.utils.fusion.fuse_conv_bn_eval(network[0], network[1]), nn.ReLU(), nn.Flatten(),
        nn.utils.fusion.fuse_linear_bn_eval(network[4], nn.BatchNorm1d(5).double().eval()), nn.ReLU(), network[7],
    )  # fmt: skip
    scale = (network[5].running_var + network[5].eps).rsqrt()
    folded[3].weight.data = network[4].weight.data * scale[:, None]
    folded[3].bias.data = (network[4].bias.data - network[5].running_mean) * scale
    images, targets = data(6)
    for explainer in (LRPGamma(), DeepTaylor(input_rule="w2")):
        maps = explained(explainer, network, images, targets)
        torch.testing.assert_close(maps, explained(explainer, folded, images, targets), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("explainer", [LRPEpsilon(), LRPGamma(), LRPAlphaBeta(), DeepTaylor(), DeepTaylor(bias=True)])
def test_batch_normalization_alone_is_a_convolution_of_each_channel(explainer):
    """As in a DenseNet, where it comes before the convolution."""
    norm, depthwise = nn.BatchNorm2d(4).double().eval(), nn.Conv2d(4, 4, 1, groups=4).double()
    norm.running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    scale = (norm.running_var + norm.eps).rsqrt()
    depthwise.weight.data, depthwise.bias.data = scale.reshape(4, 1, 1, 1), -norm.running_mean * scale
    before, after = made(nn.Conv2d(2, 4, 3), nn.ReLU()), made(nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    images, targets = data(6)
    maps, expected = (
        explained(explainer, nn.Sequential(before, layer, after).eval(), images, targets) for layer in (norm, depthwise)
    )
    torch.testing.assert_close(maps, expected, rtol=1e-9, atol=1e-11)
    assert maps.abs().max() > 1e-3


GROUPS = {"a": [0, 3], "b": [1, 2, 4]}


@pytest.mark.parametrize("weighting", ["sum", "mean"])
@pytest.mark.parametrize("explainer", [LRPEpsilon(), LRPGamma(), LRPAlphaBeta(), DeepTaylor()])
def test_classes_taken_together_share_by_their_probabilities(explainer, weighting):
    network = made(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    images, targets = data(6)
    targets = targets % 2
    maps = explained(explainer, Folded(network, GROUPS, weighting), images, targets)
    logits = network(images).detach()
    for found, image, row, target in zip(maps, images, logits, targets.tolist(), strict=True):
        members = GROUPS[("a", "b")[target]]
        shares = row[members].softmax(0)
        each = explained(explainer, network, image.expand(len(members), -1, -1, -1), torch.tensor(members))
        torch.testing.assert_close(found, (shares[:, None, None] * each).sum(0), rtol=1e-9, atol=1e-11)
    assert maps.abs().max() > 1e-3


def test_a_group_has_its_logit_less_the_entropy_and_input_times_gradient():
    network = made(nn.Flatten(), nn.Linear(18, 7, bias=False), nn.ReLU(), nn.Linear(7, 5, bias=False))
    folded, (images, _) = Folded(network, GROUPS, "sum"), data(3)
    targets = torch.arange(6) % 2
    maps = explained(LRPEpsilon(epsilon=0), folded, images, targets)
    gradient = xb.explain("input_x_gradient", folded, images, targets, output="logit", device="cpu")
    torch.testing.assert_close(maps, gradient, rtol=1e-9, atol=1e-11)
    for total, row, target in zip(maps.sum((1, 2)), network(images).detach(), targets.tolist(), strict=True):
        members = row[GROUPS[("a", "b")[target]]]
        entropy = -(members.softmax(0) * members.log_softmax(0)).sum()
        torch.testing.assert_close(total, members.logsumexp(0) - entropy)


@pytest.mark.parametrize("relu6", [nn.ReLU6(), nn.ReLU6(inplace=True)])
@pytest.mark.parametrize("explainer", [LRPEpsilon(), LRPGamma(), DeepTaylor()])
def test_relevance_passes_unchanged_through_relu6(explainer, relu6):
    """Where nothing is cut off it is ReLU; where it is, relevance starts from what is left."""
    first, last = nn.Linear(18, 7, bias=False), nn.Linear(7, 3, bias=False)
    network, (images, targets) = made(nn.Flatten(), first, relu6, last), data(3)
    relu = nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)
    torch.testing.assert_close(
        explained(explainer, network, images, targets), explained(explainer, relu, images, targets)
    )
    maps = explained(explainer, network, 30 * images, targets)
    logits = logits_of(network, 30 * images, targets)
    assert (network[1](30 * images.flatten(1)) > 6).any()
    expected = logits.clamp(min=0) if isinstance(explainer, DeepTaylor) else logits
    torch.testing.assert_close(maps.sum((1, 2)), expected, rtol=1e-5, atol=1e-4)


def test_rules_are_chosen_by_layer():
    network, (images, targets) = cnn(), data(6)
    everywhere = explained(LayerwiseRelevance(rule="z+"), network, images, targets)
    by_name = explained(LRPEpsilon(rules={"[03]": "z+", "6": "z+"}), network, images, targets)
    torch.testing.assert_close(by_name, everywhere, rtol=0, atol=0)
    some = explained(LRPEpsilon(rules={"0": "z+", "*": "epsilon"}, input_rule="w2"), network, images, targets)
    assert not torch.allclose(some, everywhere, atol=1e-3)
    torch.testing.assert_close(some, explained(LRPEpsilon(rules={"0": "z+"}), network, images, targets), rtol=0, atol=0)


def test_bounds_for_each_channel_reach_a_flattened_image():
    images, targets = data(3)
    network = mlp()
    wide = DeepTaylor(input_rule="zB", low=(-1.0, -2.0), high=(1.0, 3.0))
    low = np.repeat([-1.0, -2.0], 9)
    high = np.repeat([1.0, 3.0], 9)
    expected = [
        relevance(
            as_layers(network), x.numpy(), t, ["zB", "z+", "z+"], bias=False, positive_start=True, low=low, high=high
        ).sum(0)
        for x, t in zip(images, targets.tolist(), strict=True)
    ]
    np.testing.assert_allclose(explained(wide, network, images, targets).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_float32_agrees_with_float64():
    network, (images, targets) = cnn(), data(6)
    maps = explained(DeepTaylor(), network, images, targets)
    single = xb.explain(DeepTaylor(), network.float(), images.float(), targets, device="cpu", dtype=torch.float32)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), maps, rtol=1e-4, atol=1e-6)
