import pytest
import torch
from generators.feature_networks import package_maps, unit
from oracles import gradients as oracle
from torch import nn

from xaibench.explainers.gradients.fullgrad import FullGrad


@pytest.fixture
def model():
    """Convolutions with and without bias, batch normalization of which every number counts, ReLUs in place."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3, stride=2),
            nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(75, 5), nn.ReLU(), nn.Linear(5, 3),
        )  # fmt: skip
        for values in (*layers.parameters(), *layers.buffers()):
            if values.is_floating_point():
                nn.init.normal_(values)
        layers[1].running_var.abs_().add_(0.5)
    return layers.double().eval()


def batch(dtype=torch.float64):
    images = torch.randn(3, 2, 13, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return images.to(dtype), torch.tensor([0, 1, 2])


def test_the_oracles_shares_sum_to_the_output(model):
    images, targets = batch()
    for image, target in zip(images, targets, strict=True):
        shares = oracle.full_gradients(model, image, target)
        torch.testing.assert_close(sum(share.sum() for share in shares), model(image[None])[0, target].detach())


@pytest.mark.parametrize("rescale", ["map", "layer"])
def test_oracle(model, rescale):
    images, targets = batch()
    for size in (None, 1):
        maps = FullGrad(rescale=rescale, batch_size=size)(model, images, targets)
        for found, image, target in zip(maps, images, targets, strict=True):
            torch.testing.assert_close(found, oracle.fullgrad(model, image, target, rescale))


def test_parity_with_the_grad_cam_package(model):
    images, targets = batch(torch.float32)
    model = model.float()
    wrapped = nn.Sequential(*(nn.ReLU() if isinstance(layer, nn.ReLU) else layer for layer in model))
    theirs = package_maps("FullGrad", wrapped, None, images, targets)
    ours = unit(FullGrad()(model, images, targets))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
