import pytest
import torch
from generators.feature_networks import batch, build, pieces, unit
from oracles import cam as oracle
from torch import nn

from xaibench.explainers import UnsupportedModelError
from xaibench.explainers.cam.finercam import FinerCAM
from xaibench.explainers.cam.gradcam import GradCAM


def many_classes():
    model = build(pool=False)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model[-1] = nn.Linear(80, 6)
    return model


@pytest.mark.parametrize("n_references", [1, 3, 9])
def test_oracle(n_references):
    model = many_classes().double()
    images, targets = batch()
    maps = FinerCAM(resize=None, gamma=0.7, n_references=n_references)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.finercam(*pieces(model), image, target, gamma=0.7, n_references=n_references)
        torch.testing.assert_close(found, expected)


def test_without_comparison_it_is_grad_cam():
    images, targets = batch()
    model = many_classes().double()
    expected = GradCAM()(model, images, targets)
    torch.testing.assert_close(FinerCAM(gamma=0.0)(model, images, targets), expected)
    assert not FinerCAM()(model, images, targets).allclose(expected)


def test_parity_with_torch_cam():
    methods = pytest.importorskip("torchcam.methods")
    model = many_classes()
    images, targets = batch(6, torch.float32)
    with methods.FinerCAM(model, "0", input_shape=(2, 13, 14)) as extractor:
        theirs = extractor(targets.tolist(), model(images))[0]
    ours = unit(FinerCAM(resize=None)(model, images, targets))
    seen = ours.isfinite().all((1, 2))
    assert seen.sum() >= 3
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-5)


def test_one_output_has_nothing_to_be_compared_with():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1))
    images, _ = batch(2, torch.float32)
    with pytest.raises(UnsupportedModelError, match="FinerCAM: the model has 1 output, expected two or more classes"):
        FinerCAM()(model, images, torch.zeros(2, dtype=torch.int64))
