import warnings

import pytest
import torch
from oracles.layered import Called
from refusals import refused
from torch import nn

from xaibench.explainers import EXPLAINERS, UnsupportedModelError, explain
from xaibench.metrics import deletion
from xaibench.models import Wrapped


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)]
        return nn.Sequential(*layers).double().eval()


class InLayers(nn.Module):
    """The softmax is a layer of a layer, as in a network that is put together of parts."""

    def __init__(self, network):
        super().__init__()
        self.body = network
        self.head = nn.ModuleDict({"end": nn.Softmax(1)})

    def forward(self, x):
        return self.head["end"](self.body(x))


def called_softmax(network):
    """The softmax is a function, which no name leads to."""
    return Wrapped(network, lambda network, x: network(x).softmax(1))


PLAIN = [
    name
    for name in EXPLAINERS
    if not EXPLAINERS.resolve(name).info.control
    and not hasattr(EXPLAINERS.resolve(name), "fit")
    and EXPLAINERS.resolve(name).info.family != "Attention"
]


@pytest.mark.parametrize("name", PLAIN)
def test_a_softmax_at_the_end_changes_no_map(name, network, images, targets):
    few = {
        "rise": {"n_masks": 20},
        "sobol": {"n_designs": 2},
        "xrai": {"n_steps": 3, "segmentation_size": 16, "min_segment_size": 8, "dilation": 1},
        "hsic": {"n_samples": 40},
        "guided_ig": {"n_steps": 4},
        "blur_ig": {"n_steps": 4},
    }.get(name, {})
    expected = explain(name, network, images, targets, device="cpu", **few)
    ended = InLayers(network)
    with pytest.warns(UserWarning, match=r"ends in a softmax \('head.end'\), where logits are expected") as said:
        maps = explain(name, ended, images, targets, device="cpu", **few)
    torch.testing.assert_close(maps, expected, rtol=1e-5, atol=1e-8)
    assert said[0].filename == __file__
    assert isinstance(ended.head["end"], nn.Softmax)


class OfOlderOpsets(nn.Module):
    """The softmax of onnx2torch for opset 1 to 12."""

    def __init__(self, is_log):
        super().__init__()
        self.is_log = is_log

    def forward(self, x):
        flat = torch.flatten(x, start_dim=1)
        return torch.reshape(flat.log_softmax(-1) if self.is_log else flat.softmax(-1), x.shape)


@pytest.mark.parametrize("end", [nn.LogSoftmax(1), OfOlderOpsets(True), OfOlderOpsets(False)])
def test_a_softmax_is_recognized_by_its_values(end, network, images, targets):
    for name in ("lrp_epsilon", "lrp_gamma", "deep_taylor"):
        with pytest.warns(UserWarning, match="ends in a (log_)?softmax"):
            maps = explain(name, nn.Sequential(network, end), images, targets)
        torch.testing.assert_close(maps, explain(name, network, images, targets), rtol=1e-5, atol=1e-8)
    if not getattr(end, "is_log", True):
        with pytest.warns(UserWarning, match="ends in a softmax"):
            maps = explain("ig", nn.Sequential(network, end), images, targets)
        torch.testing.assert_close(maps, explain("ig", network, images, targets), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("end", [nn.Hardtanh(0, 1), lambda x: (3 * x).softmax(1), lambda x: x.softmax(1).round()])
def test_another_layer_with_such_values_is_no_softmax(end, network, images, targets):
    saturated = Called(lambda x: end(torch.stack([x[:, 0] * 0 - 20, x[:, 0] * 0 + 20], 1)))
    ended = nn.Sequential(network, saturated)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        explain("occlusion", ended, images, targets, check_network=False)
    assert not [one for one in shown if "ends in a softmax" in str(one.message)]


def test_integrated_gradients_do_not_shrink(network, images, targets):
    with pytest.warns(UserWarning, match="softmax"):
        maps = explain("ig", nn.Sequential(network, nn.Softmax(1)), images, targets, n_steps=200)
    with torch.no_grad():
        rise = network(images.double()).softmax(1) - network(torch.zeros(1, 1, 8, 8).double()).softmax(1)
    torch.testing.assert_close(maps.sum((1, 2)), rise[range(7), targets], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("output", ["probability", "margin"])
def test_a_softmax_that_is_no_layer_is_said(network, images, targets, output):
    with pytest.warns(UserWarning, match=f"look like probabilities, and output='{output}' takes them for logits"):
        explain("saliency", called_softmax(network), images, targets, output=output)


def test_what_is_explained_as_it_is_needs_no_warning(network, images, targets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        maps = explain("saliency", called_softmax(network), images, targets, output="logit")
        torch.testing.assert_close(maps, explain("saliency", network, images, targets), rtol=1e-9, atol=1e-12)
        explain("saliency", network, images, targets)


def test_a_softmax_that_runs_elsewhere_too_stays(images, targets):
    layers = nn.Sequential(nn.Softmax(1), nn.Linear(64, 2))
    attentive = Wrapped(layers, lambda layers, x: layers[0](layers[1](x.flatten(1) * layers[0](x.flatten(1)))))
    with pytest.warns(UserWarning, match="look like probabilities"):
        explain("saliency", attentive, images, targets)


def test_labels_whose_probabilities_sum_to_one_by_chance_are_no_softmax():
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Sigmoid())
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[3.0, 1.0, -2.0, 1.0], [-3.0, -1.0, 2.0, -1.0]]))
        network[1].bias.zero_()  # the second logit is the negative of the first: the probabilities sum to 1
    images = torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 0])
    found = explain("saliency", network, images, targets, output="sigmoid")
    expected = explain("saliency", network[:2], images, targets, output="sigmoid")
    assert torch.equal(found, expected)


def zeros_and_ones(network):
    """Its probabilities round to 0 and 1."""
    return Wrapped(network, lambda network, x: (1e5 * network(x)).softmax(1))


@pytest.mark.parametrize(
    "name", ["gradcam", "eigencam", "saliency", "integrated_gradients", "lrp_epsilon", "occlusion"]
)
@pytest.mark.parametrize("ended", [called_softmax, zeros_and_ones])
def test_every_explainer_reports_probabilities_once_per_call(name, ended, network, images, targets):
    model = ended(network)
    if ended is zeros_and_ones:
        assert set(model(images.double()).flatten().tolist()) == {0.0, 1.0}
    few = {"window": 4, "stride": 4} if name == "occlusion" else {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            explain(name, model, images, targets, device="cpu", **few)
        except UnsupportedModelError:  # LRP has no rule for a softmax
            assert name == "lrp_epsilon"
    assert sum("look like probabilities" in str(one.message) for one in said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if name != "lrp_epsilon":
            explain(name, model, images, targets, output="logit", device="cpu", **few)


def test_logits_of_zero_and_one_for_a_single_image_are_no_evidence(images):
    corner = Called(lambda x: torch.stack([1 - x[:, 0, 0, 0], x[:, 0, 0, 0] + x[:, 0, 0, 1]], 1))
    images = images.clone()
    images[0, 0, 0, :2] = torch.tensor([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain("saliency", corner, images[:1], 0)
        deletion(corner, images, images[:, 0], [0] * len(images), steps=2)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda z: (z.softmax(1), z),
        lambda z: [z, z.softmax(1)],
        lambda z: {"logits": z.softmax(1), "scores": z},
        lambda z: {"probabilities": z.softmax(1), "z": z},
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_of_logits_and_their_softmax_the_logits_are_explained(arrange, scale, network, images, targets):
    with torch.no_grad():
        network[-1].weight *= scale
    model = Wrapped(network, lambda network, x: arrange(network(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("gradcam", "integrated_gradients", "cam"):
            found = explain(name, model, images, targets, device="cpu")
            assert torch.equal(found, explain(name, network, images, targets, device="cpu")), name
        maps = images[:, 0]
        assert deletion(model, images, maps, targets, steps=2) == deletion(network, images, maps, targets, steps=2)


@pytest.mark.parametrize(
    "arrange", [lambda z: (z.exp(), z), lambda z: {"a": z, "b": 2 * z}, lambda z: (z, -z, z[:, 0])]
)
def test_other_pairs_of_tables_are_refused(arrange, network, images, targets):
    model = Wrapped(network, lambda network, x: arrange(network(x)))
    for call in (
        lambda: explain("gradcam", model, images, targets),
        lambda: deletion(model, images, images[:, 0], targets),
    ):
        refused(ValueError, "Of several tensors [N, K], choose the logits: xaibench.models.Wrapped", call)
