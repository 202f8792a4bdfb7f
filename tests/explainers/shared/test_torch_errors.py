"""Networks that torch cannot differentiate are refused by name, also while an explainer is fitted."""

import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.explainers import UnsupportedModelError, build, explain


class Overwriting(nn.Module):
    """Computes a sigmoid and overwrites it, which torch needs for the gradient."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 2, 3), nn.Linear(2, 2)

    def forward(self, x):
        y = self.conv(x).sigmoid()
        y.mul_(2.0)
        return self.last((y * y).mean((2, 3)))


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        return self.last(x.detach().flatten(1))


@pytest.mark.parametrize("network", [Overwriting, Detached])
@pytest.mark.parametrize("explainer", ["agop", "pattern_net"])
def test_fitting_names_the_network(explainer, network):
    with pytest.raises(UnsupportedModelError):
        build(explainer).fit(network(), [torch.rand(4, 1, 4, 4)])


def fit_agop(model, images):
    return build("agop").fit(model, [images])


def explain_by_saliency(model, images):
    return explain("saliency", model, images, 0)


@pytest.mark.parametrize(("name", "call"), [("AGOP.fit", fit_agop), ("Saliency", explain_by_saliency)])
def test_the_message_has_explainer_and_network(name, call):
    refused(UnsupportedModelError, name, call, Overwriting(), torch.rand(2, 1, 4, 4))
    refused(UnsupportedModelError, "Overwriting", call, Overwriting(), torch.rand(2, 1, 4, 4))


class Centering(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))

    def forward(self, x):
        return self.body(x.sub_(0.5))


def test_fitting_leaves_images_that_the_network_overwrites():
    images = torch.rand(4, 1, 4, 4)
    before = images.clone()
    build("pattern_net").fit(Centering(), [images])
    assert torch.equal(images, before)
