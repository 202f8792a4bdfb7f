"""The network of the watermark suite."""

import pytest
import torch
from part_cases import ModelCase
from refusals import refused
from torch import nn

from xaibench.benchmarks import SmallCNN
from xaibench.models import build

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
