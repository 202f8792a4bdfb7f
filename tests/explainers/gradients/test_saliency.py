import captum.attr
import torch
from generators.gradient_networks import batch, bending, outputs
from oracles import explainers as oracle
from torch import nn

from xaibench.explainers import ExplainedOutput, explain
from xaibench.explainers.gradients.saliency import InputXGradient


def test_saliency_is_the_signed_gradient(double, images, targets):
    model, explained = double
    maps = explain("saliency", model, images, targets)
    expected = [oracle.gradient(explained, x, y)[0] for x, y in zip(images.double(), targets, strict=True)]
    torch.testing.assert_close(maps, torch.stack(expected), rtol=1e-12, atol=1e-16)
    theirs = captum.attr.Saliency(explained).attribute(images.double().requires_grad_(), target=targets, abs=False)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-12, atol=1e-16)
    assert (maps < 0).any()


def test_a_saturated_network_still_has_a_gradient(mlp, images, targets):
    with torch.no_grad():
        mlp.layers[-1].weight.mul_(9000)
    explained = ExplainedOutput(mlp.double().eval())
    margin = explained.network(images.double()).diff(dim=1).abs()
    assert (margin > 40).all()
    assert (margin < 700).all()
    maps = explain("saliency", mlp, images, targets)
    assert (maps.flatten(1).abs().sum(1) > 0).all()
    # The margin's gradient is the probability's up to a factor a sample.
    class_margins = explain("saliency", mlp, images, targets, output="margin")
    for one, other in zip(maps.flatten(1), class_margins.flatten(1), strict=True):
        torch.testing.assert_close(one / one.abs().max(), other / other.abs().max(), rtol=1e-9, atol=1e-12)


def test_input_x_gradient_is_captums_summed_over_the_channels():
    model, (images, targets) = bending(), batch()
    theirs = captum.attr.InputXGradient(model).attribute(images.clone().requires_grad_(), target=targets)
    torch.testing.assert_close(InputXGradient()(model, images, targets), theirs.sum(1).detach())


def test_input_x_gradient_of_a_linear_model_sums_to_its_output():
    model, (images, targets) = nn.Sequential(nn.Flatten(), nn.Linear(126, 2, bias=False)).double(), batch()
    found = InputXGradient()(model, images, targets)
    torch.testing.assert_close(found.sum((1, 2)), outputs(model, images, targets))
