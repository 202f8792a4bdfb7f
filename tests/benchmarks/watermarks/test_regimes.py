"""Whether a network uses the watermark, on networks for which it is known."""

import pytest
import torch
from part_cases import ModelCase
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.benchmarks import SmallCNN, blind, watermark_use
from xaibench.benchmarks.watermarks.regimes import banner_mask
from xaibench.models import build

SPLIT = xb.load("watermarks/none", n_samples=80).test
MASK = torch.from_numpy(banner_mask(64))


def sees_the_letters(images):
    return torch.stack([torch.full((len(images),), 0.8 * MASK.sum()), images[:, 0, MASK].sum(1)], 1)


def test_a_network_that_decides_by_the_watermark_flips_with_it():
    use = watermark_use(sees_the_letters, SPLIT)
    assert use.flipped == 1
    changes = (SPLIT.watermarked - SPLIT.plain)[:, 0, MASK].sum(1).double()
    expected = changes.mean() / SPLIT.plain[:, 0, MASK].sum(1).double().std()
    assert use.change == use.magnitude == pytest.approx(float(expected), rel=1e-4)
    assert (use.accuracy_watermarked, use.accuracy_plain) == (0.5, 0.5)


def test_a_blinded_network_does_not_use_it():
    visible = torch.ones(64, 64, dtype=torch.bool)
    visible[:18] = False
    use = watermark_use(blind(build("small_cnn", (1, 64, 64), 2, seed=0), visible), SPLIT)
    assert (use.change, use.magnitude, use.flipped) == (0, 0, 0)
    assert use.accuracy_watermarked == use.accuracy_plain


def test_bad_input_is_refused():
    refused(TypeError, "Split", lambda: watermark_use(sees_the_letters, xb.load("watermarks/none", n_samples=80).train))
    refused(ValueError, "[12, 3]", lambda: watermark_use(lambda images: torch.zeros(len(images), 3), SPLIT))
    refused(ValueError, "0.0", lambda: watermark_use(lambda images: torch.zeros(len(images), 2), SPLIT))


CASES = {"small_cnn": ModelCase(shapes=((1, 64, 64), (3, 32, 48)))}


def test_it_has_three_blocks_and_a_linear_layer():
    model = build("small_cnn", (3, 32, 48), 5)
    kinds = [nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 3 + [nn.Linear]
    assert [type(layer) for layer in model] == kinds
    assert model(torch.zeros(2, 3, 32, 48)).shape == (2, 5)
    assert sum(weight.numel() for weight in model.parameters()) == (
        (3 * 9 * 8 + 8) + (8 * 9 * 12 + 12) + (12 * 9 * 16 + 16) + (16 * 4 * 6 * 5 + 5)
    )


@pytest.mark.parametrize(("shape", "classes"), [((1, 60, 64), 2), ((0, 64, 64), 2), ((1, 64, 64), 1)])
def test_what_it_does_not_support_is_refused(shape, classes):
    refused(ValueError, "SmallCNN:", lambda: SmallCNN(shape, classes))
