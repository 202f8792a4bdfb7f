import captum.attr
import pytest
import torch
from captum.attr._utils.lrp_rules import GammaRule
from oracles.layered import Called, made
from part_cases import ExplainerCase
from torch import nn

from xaibench.explainers import ExplainedOutput, UnsupportedModelError, explain
from xaibench.models import Folded
from xaibench.models.networks.pretrained import Normalize

#: Captum's LRP assigns by masks, for which torch 2.14.1 waits.
CASES = {"lrp": ExplainerCase(waits=7)}


def test_two_layers_by_hand(two_layers):
    model, x, y = two_layers
    # Relevances h1: 4, h3: -2, each shared by the contributions: 4 (2, 2)/4 - 2 (2, -1)/1.
    assert explain("lrp", model, x, y, output="logit").flatten().tolist() == pytest.approx([-2.0, 4.0], rel=1e-7)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_agreement_with_captum(batch_size, double, images, targets):
    model, explained = double
    maps = explain("lrp", model, images, targets, batch_size=batch_size)
    theirs = captum.attr.LRP(explained).attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert maps.abs().max() > 1e-6


def test_a_rule_on_a_layer_is_used(double, images, targets):
    model, explained = double
    plain = explain("lrp", model, images, targets)
    first = next(layer for layer in model.layers if isinstance(layer, nn.Conv2d | nn.Linear))
    first.rule = GammaRule()
    maps = explain("lrp", model, images, targets)
    assert isinstance(first.rule, GammaRule)
    theirs = captum.attr.LRP(explained).attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert not torch.allclose(maps, plain, rtol=1e-3)


def test_without_biases_it_sums_to_the_logit(mlp, images, targets):
    for layer in mlp.layers:
        if isinstance(layer, nn.Linear):
            layer.bias.data.zero_()
    maps = explain("lrp", mlp, images, targets, output="logit")
    at_images = ExplainedOutput(mlp.double().eval(), "logit")(images.double())[range(7), targets].detach()
    torch.testing.assert_close(maps.sum((1, 2)), at_images, rtol=1e-6, atol=1e-9)


class WithModules(nn.Module):
    """The network with layers that only move numbers written as modules."""

    def __init__(self, model):
        super().__init__()
        shape = Called(lambda x: x.reshape(len(x), -1, 1, 1))
        self.model = nn.Sequential(*model.layers[:-1], nn.Identity(), nn.Dropout2d(), shape, nn.Flatten())
        self.last, self.unused = model.layers[-1], nn.GELU()

    def forward(self, x):
        return self.last(self.model(x))


def test_it_passes_through_layers_that_only_move_numbers(cnn, images, targets):
    expected = explain("lrp", cnn, images, targets)
    torch.testing.assert_close(
        explain("lrp", WithModules(cnn), images, targets, dtype=torch.float64), expected, rtol=1e-6, atol=1e-12
    )


def test_it_passes_unchanged_through_a_normalization(cnn, images, targets):
    """Maps of the pixels are maps of the normalized image; also in the middle of a network, after a ReLU."""
    normalize = Normalize([0.3], [0.25]).double()
    expected = explain("lrp", cnn, normalize(images.double()), targets)
    model = nn.Sequential(normalize, cnn)
    torch.testing.assert_close(explain("lrp", model, images, targets, dtype=torch.float64), expected)
    first, last = made(nn.Linear(64, 8), nn.Linear(8, 2))
    middle = nn.Sequential(nn.Flatten(), first, nn.ReLU(), Called(lambda x: 3 * x), last)
    scaled = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(8, 2))
    scaled[3].weight.data, scaled[3].bias.data = 3 * last.weight.data, last.bias.data
    ours, theirs = (explain("lrp", model, images, targets, dtype=torch.float64) for model in (middle, scaled))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)
    assert ours.abs().max() > 1e-3


def test_the_log_sum_exp_goes_back_as_a_gradient(mlp, images):
    model = nn.Sequential(*nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 5))).double()
    folded = Folded(model, {"a": [0, 3], "b": [1, 2, 4]}, weighting="sum")
    maps = explain("lrp", folded, images, torch.ones(7, dtype=torch.int64), output="logit", dtype=torch.float64)
    logits, group = model(images.double()).detach(), folded(images.double())[:, 1].detach()
    shares = logits[:, [1, 2, 4]].softmax(1)
    expected = torch.zeros_like(maps)
    for share, j in zip(shares.T, (1, 2, 4), strict=True):
        member = explain("lrp", model, images, torch.full((7,), j), output="logit")
        # As through the softmax: relevance starts as the gradient, and is multiplied by the explained output.
        expected += (group * share / logits[:, j])[:, None, None] * member
    torch.testing.assert_close(maps, expected, rtol=1e-6, atol=1e-9)


def test_an_activation_in_place_is_treated_the_same(images, targets):
    first, last = made(nn.Linear(64, 8), nn.Linear(8, 2))
    expected = explain("lrp", nn.Sequential(nn.Flatten(), first, nn.ReLU(), last), images, targets)
    model = nn.Sequential(nn.Flatten(), first, nn.ReLU(inplace=True), last)
    torch.testing.assert_close(explain("lrp", model, images, targets), expected)


def test_a_layer_that_overwrites_its_input_passes_relevance_on_unchanged(images, targets):
    def network(in_place):
        torch.manual_seed(0)
        affine = Called(lambda x: x.mul_(0.5).add_(0.25) if in_place else x * 0.5 + 0.25)
        return nn.Sequential(nn.Conv2d(1, 4, 3), affine, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))

    plain, overwriting = network(False), network(True)
    plain(images)
    overwriting.load_state_dict(plain.state_dict())
    torch.testing.assert_close(explain("lrp", overwriting, images, targets), explain("lrp", plain, images, targets))


class Padded(nn.Module):
    def forward(self, x):
        larger = torch.zeros(*x.shape[:2], x.shape[2] + 2, x.shape[3] + 2)
        larger[:, :, 1:-1, 1:-1] = x
        return larger


def test_a_layer_that_changes_the_shape_by_sums_is_refused(images, targets):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), Padded(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    with pytest.raises(UnsupportedModelError, match=r"'1' \(Padded\)"):
        explain("lrp", model, images, targets)
