import importlib

import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle
from torch import nn

from xaibench import explain
from xaibench.explainers.cam.gradcam import GradCAM
from xaibench.explainers.cam.shapleycam import ShapleyCAM


def curved():
    """A network whose logits are not linear in the feature maps."""
    model = build()
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(*model[:-1], nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).eval()


@pytest.mark.parametrize("utility", ["rest", "output"])
def test_oracle(utility):
    model = curved().double()
    images, targets = batch()
    maps = ShapleyCAM(resize=None, utility=utility)(model, images, targets)
    assert (maps.flatten(1).amax(1) > 0).any()
    value = oracle.rest if utility == "rest" else lambda outputs, target: outputs[target]
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.shapleycam(*pieces(model), image, target, utility=value))


def test_a_utility_that_is_linear_gives_grad_cam():
    model = build().double()
    images, targets = batch()
    expected = GradCAM()(model, images, targets)
    torch.testing.assert_close(ShapleyCAM(utility="output")(model, images, targets), expected)
    assert not ShapleyCAM()(model, images, targets).allclose(expected)


@pytest.mark.parametrize("output", ["probability", "sigmoid", "margin"])
def test_another_output_is_the_utility(output):
    model = build(pool=False).double()
    images, targets = batch()

    def value(outputs, target):
        if output == "margin":
            return outputs[target] - torch.cat([outputs[:target], outputs[target + 1 :]]).logsumexp(0)
        return outputs.softmax(0)[target] if output == "probability" else outputs[target].sigmoid()

    maps = explain(ShapleyCAM(resize=None), model, images, targets, output=output, device="cpu")
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.shapleycam(*pieces(model), image, target, utility=value))


@pytest.mark.parametrize("utility", ["rest", "output"])
def test_parity_with_the_grad_cam_package(utility):
    pytest.importorskip("pytorch_grad_cam", exc_type=ImportError)
    model = curved()
    images, targets = batch(6, torch.float32)
    if utility == "output":
        theirs = package_maps("ShapleyCAM", model, model[0], images, targets)
    else:
        kinds = importlib.import_module("pytorch_grad_cam.utils.model_targets")
        outputs = [kinds.ClassifierOutputReST(int(target)) for target in targets]
        cam = importlib.import_module("pytorch_grad_cam").ShapleyCAM(model, [model[0]])
        theirs = torch.from_numpy(cam(images.clone(), outputs))
    ours = unit(ShapleyCAM(utility=utility)(model, images, targets))
    seen = ours.isfinite().all((1, 2))
    assert seen.sum() >= 2
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-5)
