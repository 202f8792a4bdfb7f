import pytest
import torch
from generators.gradient_networks import ask, batch, bending, outputs
from oracles import gradients as oracle
from part_cases import ExplainerCase
from scipy import ndimage

from xaibench.explainers.gradients.blur_ig import BlurIG

CASES = {"blur_ig": ExplainerCase(parameters={"n_steps": 4})}


@pytest.mark.parametrize("batch_size", [None, 2])
def test_oracle(batch_size):
    model, (images, targets) = bending(), batch()
    maps = BlurIG(n_steps=6, max_sigma=5.0, batch_size=batch_size)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.blur_ig(model, image, target, 6, 5.0, 0.01).sum(0))


def test_parity_with_the_authors_package():
    package = pytest.importorskip("saliency.core")
    model, (images, targets) = bending(), batch()
    maps = BlurIG(n_steps=10, max_sigma=4.0)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        x = image.permute(1, 2, 0).numpy()
        theirs = package.BlurIG().GetMask(x, ask(model, target), steps=10, max_sigma=4)
        torch.testing.assert_close(found, torch.from_numpy(theirs).sum(2), rtol=0, atol=1e-8)


def test_it_is_complete_with_many_steps():
    model, (images, targets) = bending(), batch(2)
    blurred = torch.from_numpy(ndimage.gaussian_filter(images.numpy(), (0, 0, 7 / 6, 7 / 6), mode="constant"))
    difference = outputs(model, images, targets) - outputs(model, blurred, targets)
    found = BlurIG(n_steps=1500)(model, images, targets).sum((1, 2))
    torch.testing.assert_close(found, difference, rtol=0.05, atol=0.03)
