"""Networks as they come from elsewhere: what is explained, and what the errors say."""

import copy

import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.explainers import EXPLAINERS, UnsupportedModelError, build, explain, gradient_free
from xaibench.models import Wrapped


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)]
        return nn.Sequential(*layers).eval()


@pytest.fixture
def images():
    return torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


TARGETS = [0, 2, 1]


@pytest.mark.parametrize("output", [None, "probability", "sigmoid", "logit", lambda z: z[:, 0] - z[:, 1]])
@pytest.mark.parametrize("name", ["integrated_gradients", "gradcam", "lrp_epsilon", "occlusion"])
def test_an_explainer_inside_another_one_explains_the_same(network, images, name, output):
    if name == "lrp_epsilon" and output == "probability":
        alone = explain(name, network, images, TARGETS)
    else:
        alone = explain(name, network, images, TARGETS, output=output)

    def doubled(model, x, targets):
        return 2 * explain(name, model, x, targets)

    torch.testing.assert_close(explain(doubled, network, images, TARGETS, output=output), 2 * alone)


def test_an_explainer_inside_another_one_counts_for_its_budget(network, images):
    def saliency(model, x, targets):
        return explain("saliency", model, x, targets)

    assert explain(saliency, network, images, TARGETS, budget=2).shape == (3, 8, 8)
    with pytest.raises(ValueError, match="got a budget of 3 passes for these images, expected more"):
        explain(saliency, network, images, TARGETS, budget=1)


def test_an_output_inside_another_explainer_takes_precedence(network, images):
    def inner(model, x, targets):
        return explain("saliency", model, x, targets, output="logit")

    expected = explain("saliency", network, images, TARGETS, output="logit")
    assert torch.equal(explain(inner, network, images, TARGETS, output="probability"), expected)


def test_a_sigmoid_that_saturates_has_a_gradient(images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).double()
    model[1].bias.data += 500
    maps = explain("saliency", model, images.double(), 0, output="sigmoid")
    weights = model[1].weight[0].detach().reshape(8, 8).expand(3, 8, 8)
    torch.testing.assert_close(*(x / x.abs().amax((1, 2), keepdim=True) for x in (maps, weights)))


def test_the_logit_of_a_network_that_ends_in_a_sigmoid_is_taken_before_it(network, images):
    expected = explain("saliency", network, images, TARGETS, output="logit")
    with pytest.warns(UserWarning, match=r"ends in a sigmoid \('1'\); its inputs are taken as the logits"):
        found = explain("saliency", nn.Sequential(network, nn.Sigmoid()), images, TARGETS, output="logit")
    assert torch.equal(found, expected)


def test_a_sigmoid_that_is_called_is_explained_as_it_is(network, images):
    called = Wrapped(network, lambda network, x: network(x).sigmoid())
    expected = explain("saliency", network, images, TARGETS, output="sigmoid")
    torch.testing.assert_close(explain("saliency", called, images, TARGETS, output="sigmoid"), expected)
    one = Wrapped(network, lambda network, x: network(x)[:, 0].sigmoid())
    for target, sign in ((1, 1), (0, -1)):
        found = explain("saliency", one, images, target, output="sigmoid")
        torch.testing.assert_close(found, sign * explain("saliency", network, images, 0, output="sigmoid"))
    for output in (None, "probability", "margin"):
        with pytest.raises(ValueError, match=rf"ends in a sigmoid, got output={output!r}.*Pass output='sigmoid'"):
            explain("saliency", called, images, TARGETS, output=output)


def test_probabilities_of_unknown_origin_are_said(images):
    model = Wrapped(nn.Linear(64, 20), lambda layer, x: 1 / (1 + torch.exp(-layer(x.flatten(1)))))
    with pytest.warns(UserWarning, match="look like probabilities of independent labels, and output='probability'"):
        explain("saliency", model, images, TARGETS)
    with pytest.warns(UserWarning, match="look like probabilities of independent labels, and output='probability'"):
        xb.deletion(model, images, torch.rand(3, 8, 8), TARGETS, steps=2)


def test_further_inputs_are_wrapped(images):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(66, 2)

        def forward(self, x, meta):
            return self.layer(torch.cat([x.flatten(1), meta.expand(len(x), 2)], 1))

    model, meta = Two(), torch.ones(1, 2)
    with pytest.raises(ValueError, match=r"xaibench.models.Wrapped\(model, lambda model, images: model\(images"):
        explain("saliency", model, images, 0)
    with pytest.raises(TypeError, match=r"Wrap a function in a module.*xaibench.models.Wrapped"):
        explain("saliency", lambda x: model(x, meta), images, 0)
    wrapped = Wrapped(model, lambda model, x: model(x, meta.to(x)))
    expected = model.layer.weight.detach()[0, :64].reshape(8, 8).expand(3, 8, 8)
    torch.testing.assert_close(explain("saliency", wrapped, images, 0, output="logit"), expected)
    assert explain("saliency", wrapped, images, 0, output="logit", dtype=torch.float64).dtype == torch.float64
    assert isinstance(copy.deepcopy(wrapped), Wrapped)


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="needs fbgemm")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantized_networks_are_explained_by_what_needs_no_gradient(network, images):
    quantized = torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, torch.qint8)
    parameters = {"n_samples": 70, "n_masks": 20}
    for name in ("rise", "occlusion", "kernel_shap", "lime"):
        assert name in gradient_free()
        own = {key: value for key, value in parameters.items() if hasattr(EXPLAINERS.resolve(name), key)}
        own |= {"feature_mask": "grid"} if "n_samples" in own else {}
        assert explain(name, quantized, images, TARGETS, device="cpu", **own).shape == (3, 8, 8)
    for name in ("saliency", "gradcam", "integrated_gradients"):
        with pytest.raises(UnsupportedModelError):
            explain(name, quantized, images, TARGETS, device="cpu")


def test_a_captum_object_explains_no_function(network, images):
    import captum.attr

    with pytest.raises(ValueError, match="explains its own function"):
        explain(captum.attr.Saliency(network), network, images, output=lambda z: z[:, 0])


@pytest.mark.parametrize("name", ["saliency", "fullgrad", "ig2", "lrp_epsilon", "crp"])
def test_explainers_called_directly_need_a_gradient(network, images, name):
    part = build(name)
    part = part.fit(network, [images]) if hasattr(part, "fit") else part
    with torch.no_grad():
        assert part(network, images, torch.tensor(TARGETS)).any()
    with pytest.raises(UnsupportedModelError, match="gradient"):
        part(Wrapped(network, lambda network, x: network(x).detach()), images, torch.tensor(TARGETS))


@pytest.mark.parametrize(
    "act",
    [
        lambda x: torch.clamp(x, min=0, out=torch.empty_like(x)),
        lambda x: [half.relu_() for half in x.chunk(2, 1)] and x,
        lambda x: x.square().mul_(x.exp_()),
    ],
)
def test_networks_that_torch_cannot_differentiate_are_refused_where_a_gradient_is_needed(act):
    net, images = Wrapped(nn.Conv2d(3, 4, 3), lambda conv, x: act(conv(x)).mean((2, 3))), torch.rand(2, 3, 6, 6)
    for explainer in ("saliency", "integrated_gradients", "fullgrad"):
        with pytest.raises(UnsupportedModelError):
            explain(explainer, net, images, 1)
    with pytest.raises(UnsupportedModelError):
        xb.metrics.adversarial(net, images, images[:, 0], [1, 1], epsilon=0.1)
    assert explain("occlusion", net, images, 1).isfinite().all()
