import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle

from xaibench.explainers.cam.gradcam import EigenCAM
from xaibench.explainers.cam.kpcacam import KPCACAM

#: The definitions, with the default gamma of five feature maps.
KERNELS = {
    "sigmoid": lambda x, y: torch.tanh((x @ y) / 5 + 1),
    "rbf": lambda x, y: torch.exp(-((x - y) ** 2).sum() / 5),
    "poly": lambda x, y: ((x @ y) / 5 + 1) ** 3,
    "linear": lambda x, y: x @ y,
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_oracle(kernel):
    model = build().double()
    images, targets = batch()
    maps = KPCACAM(resize=None, kernel=kernel)(model, images, targets)
    for found, image in zip(maps, images, strict=True):
        assert found.any()
        expected = oracle.kpcacam(pieces(model)[0], image, KERNELS[kernel])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_gamma():
    model = build().double()
    images, targets = batch(1)
    found = KPCACAM(resize=None, kernel="rbf", gamma=0.5)(model, images, targets)[0]
    expected = oracle.kpcacam(pieces(model)[0], images[0], lambda x, y: torch.exp(-0.5 * ((x - y) ** 2).sum()))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_linear_kernel_is_eigen_cam():
    model = build().double()
    images, targets = batch()
    torch.testing.assert_close(KPCACAM(kernel="linear")(model, images, targets), EigenCAM()(model, images, targets))


def test_features_that_are_equal_everywhere_give_zeros():
    model = build()
    images, targets = batch(2, torch.float32)
    assert not KPCACAM(resize=None)(model, torch.ones_like(images), targets).any()


@pytest.mark.parametrize("kernel", KERNELS)
def test_parity_with_the_grad_cam_package(kernel):
    model = build()
    images, targets = batch(6, torch.float32)
    theirs = package_maps("KPCA_CAM", model, model[0], images, targets, kernel=kernel)
    # The package cuts at zero before it enlarges.
    ours = KPCACAM(resize=None, kernel=kernel)(model, images, targets).relu()
    ours = torch.nn.functional.interpolate(unit(ours)[:, None], images.shape[2:], mode="bilinear")[:, 0]
    torch.testing.assert_close(unit(ours), theirs, rtol=0, atol=1e-4)
