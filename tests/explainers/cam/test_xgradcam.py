import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle

from xaibench.explainers.cam.xgradcam import XGradCAM


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "flattened"])
def test_oracle(pool):
    model = build(pool=pool).double()
    images, targets = batch()
    maps = XGradCAM(resize=None)(model, images, targets)
    assert (maps.flatten(1).amax(1) > 0).any()
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.xgradcam(*pieces(model), image, target))


def test_a_feature_map_that_sums_to_zero_has_no_weight():
    model = build().double()
    with torch.no_grad():
        model[0][2].weight[1] = 0
        model[0][2].bias[1] = -1  # a dead feature map
    images, targets = batch()
    maps = XGradCAM(resize=None)(model, images, targets)
    assert maps.isfinite().all()
    assert maps.any()


@pytest.mark.parametrize("package", ["grad-cam", "torch-cam"])
def test_parity(package):
    model = build(pool=False)
    images, targets = batch(6, torch.float32)
    if package == "grad-cam":
        theirs = package_maps("XGradCAM", model, model[0], images, targets)
        ours = unit(XGradCAM()(model, images, targets))
    else:
        methods = pytest.importorskip("torchcam.methods")
        with methods.XGradCAM(model, "0", input_shape=(2, 13, 14)) as extractor:
            theirs = extractor(targets.tolist(), model(images))[0]
        ours = unit(XGradCAM(resize=None)(model, images, targets))
    seen = ours.isfinite().all((1, 2))
    assert seen.sum() >= 3
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-5)
