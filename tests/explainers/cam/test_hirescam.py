import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle

from xaibench.explainers.cam.gradcam import CAM
from xaibench.explainers.cam.hirescam import HiResCAM


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "flattened"])
def test_oracle_and_the_map_sums_to_the_logit(pool):
    model = build(pool=pool).double()
    images, targets = batch()
    maps = HiResCAM(resize=None)(model, images, targets)
    assert (maps < 0).any()
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.hirescam(*pieces(model), image, target))
    logits = model(images).gather(1, targets[:, None])[:, 0] - model[-1].bias[targets]
    torch.testing.assert_close(maps.sum((1, 2)), logits)
    if pool:  # there it is CAM, but for the number of positions
        torch.testing.assert_close(maps * maps[0].numel(), CAM(resize=None)(model, images, targets))


def test_parity_with_the_grad_cam_package():
    model = build(pool=False)
    images, targets = batch(6, torch.float32)
    theirs = package_maps("HiResCAM", model, model[0], images, targets)
    # The package cuts at zero before it enlarges.
    ours = HiResCAM(resize=None)(model, images, targets).relu()
    ours = torch.nn.functional.interpolate(unit(ours)[:, None], images.shape[2:], mode="bilinear")[:, 0]
    torch.testing.assert_close(unit(ours), theirs, rtol=0, atol=1e-5)
