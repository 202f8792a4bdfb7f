import captum.attr
import torch
from generators.gradient_networks import batch, bending, outputs
from torch import nn

from xaibench.explainers.gradients.input_x_gradient import InputXGradient


def test_input_x_gradient_is_captums_summed_over_the_channels():
    model, (images, targets) = bending(), batch()
    theirs = captum.attr.InputXGradient(model).attribute(images.clone().requires_grad_(), target=targets)
    torch.testing.assert_close(InputXGradient()(model, images, targets), theirs.sum(1).detach())


def test_input_x_gradient_of_a_linear_model_sums_to_its_output():
    model, (images, targets) = nn.Sequential(nn.Flatten(), nn.Linear(126, 2, bias=False)).double(), batch()
    found = InputXGradient()(model, images, targets)
    torch.testing.assert_close(found.sum((1, 2)), outputs(model, images, targets))
