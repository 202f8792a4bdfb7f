import captum.attr
import pytest
import torch
from torch import nn

from xaibench.explainers.gradients.input_x_gradient import InputXGradient


def batch(n=3, channels=3):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, channels, 6, 7, generator=rng, dtype=torch.float64), torch.arange(n) % 2


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(120, 2)).double().eval()


def test_input_x_gradient_is_captums_summed_over_the_channels(model):
    images, targets = batch()
    theirs = captum.attr.InputXGradient(model).attribute(images.clone().requires_grad_(), target=targets)
    torch.testing.assert_close(InputXGradient()(model, images, targets), theirs.sum(1).detach())


def test_input_x_gradient_of_a_linear_model_sums_to_its_output():
    model = nn.Sequential(nn.Flatten(), nn.Linear(126, 2, bias=False)).double()
    images, targets = batch()
    outputs = model(images).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(InputXGradient()(model, images, targets).sum((1, 2)), outputs)
