"""What is fitted to a network: the network is checked before, and may modify its input."""

import pytest
import torch
from torch import nn

from xaibench.explainers import build, explain

IMAGES = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
FITTED = ["agop", "pattern_net", "pattern_attribution"]


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("layer", [nn.Linear(8, 2), nn.Linear(16, 2, dtype=torch.cfloat)])
def test_a_network_that_does_not_take_the_images_is_refused(name, layer):
    with pytest.raises(ValueError, match=r"fit: the model cannot take images of shape \[2, 1, 4, 4\]"):
        build(name).fit(nn.Sequential(nn.Flatten(), layer), [IMAGES])


@pytest.mark.parametrize("name", FITTED)
def test_a_network_that_modifies_its_input(name):
    linear, before = nn.Linear(16, 2), IMAGES.clone()
    maps = []
    for inplace in (True, False):
        network = nn.Sequential(nn.ReLU(inplace=inplace), nn.Flatten(), linear)
        maps.append(explain(build(name).fit(network, [IMAGES]), network, IMAGES, 0, output="logit"))
    assert torch.equal(*maps)
    assert torch.equal(IMAGES, before)


def test_patterns_of_a_network_in_bfloat16():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    fitted = build("gradient_pattern", n_samples=2).fit(network, [IMAGES])
    whole, rounded = (explain(fitted, network, IMAGES, 0, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    torch.testing.assert_close(rounded.float(), whole, rtol=0.1, atol=0.1 * whole.abs().max().item())
