import importlib

import pytest
import torch
from generators.feature_networks import batch, build, unit
from oracles import cam as oracle
from torch import nn

from xaibench.explainers.cam.gradcam import GradCAM, GradCAMPlusPlus, LayerCAM
from xaibench.explainers.cam.refinecam import RefineCAM

#: The feature maps of 4 and of 6 by 6 positions of the small network.
LATE, EARLY = "0", "0.1"
METHODS = {"gradcam++": GradCAMPlusPlus, "gradcam": GradCAM, "layercam": LayerCAM}


@pytest.mark.parametrize("method", METHODS)
def test_oracle(method):
    model = build(pool=False).double()
    images, targets = batch(6)
    maps = RefineCAM(method=method)(model, images, targets)
    assert (maps.flatten(1).amax(1) == 1).sum() >= 3
    per_layer = [METHODS[method](layer=layer, resize=None)(model, images, targets) for layer in (LATE, EARLY)]
    for found, late, early in zip(maps, *per_layer, strict=True):
        torch.testing.assert_close(found, oracle.refinecam([late, early], (13, 14)))


def test_without_resize_it_has_the_size_of_the_earliest_layer():
    model = build(pool=False).double()
    images, targets = batch()
    maps = RefineCAM(resize=None)(model, images, targets)
    assert maps.shape == (3, 6, 6)
    per_layer = [GradCAMPlusPlus(layer=layer, resize=None)(model, images, targets) for layer in (LATE, EARLY)]
    torch.testing.assert_close(maps[0], oracle.refinecam([each[0] for each in per_layer], (6, 6)))


def test_one_layer_is_the_scaled_map_of_the_method():
    model = build(pool=False).double()
    images, targets = batch()
    expected = unit(GradCAMPlusPlus()(model, images, targets)).nan_to_num()
    torch.testing.assert_close(RefineCAM(n_layers=1)(model, images, targets), expected)
    torch.testing.assert_close(RefineCAM(layer=EARLY)(model, images, targets)[0].amax(), torch.ones(()).double())


@pytest.mark.parametrize(("name", "base"), [("gradcam++", "GradCAMPlusPlus"), ("gradcam", "GradCAM")])
def test_parity_with_the_grad_cam_package(name, base):
    package = pytest.importorskip("pytorch_grad_cam", exc_type=ImportError)  # OpenCV may lack libGL
    if not hasattr(package, "RefineCAM"):
        pytest.skip("the package has RefineCAM since May 2026")
    model = build(pool=False)
    images, targets = batch(6, torch.float32)
    kinds = importlib.import_module("pytorch_grad_cam.utils.model_targets")
    outputs = [kinds.ClassifierOutputTarget(int(target)) for target in targets]
    theirs = package.RefineCAM(model, [model[0], model[0][1]], base_method=getattr(package, base))(images, outputs)
    ours = RefineCAM(method=name)(model, images, targets)
    assert ours.any((1, 2)).sum() >= 3
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=0, atol=1e-5)


def test_a_constant_map_counts_as_zero():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    nn.init.zeros_(model[2].weight)  # the second feature map is that of its bias
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert not RefineCAM()(model, images, torch.tensor([0, 1])).any()
