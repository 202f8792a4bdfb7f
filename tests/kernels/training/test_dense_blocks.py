"""A block as a matrix product equals the layers of the block."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from xaibench.kernels.training.dense_blocks import DenseBlock


def stacked(layers, images, first):
    """Return weights and outputs of the block, for two networks with different weights."""
    block = DenseBlock.of(layers, images.shape[2:], torch.zeros((), dtype=torch.float64), first=first)
    conv = layers[0]
    shape = (2, *conv.weight.shape)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    bias = None
    if conv.bias is not None:
        bias = torch.randn(2, shape[1], generator=generator, dtype=torch.float64).requires_grad_()
    cut = torch.stack([block.cut(each) for each in images])
    return weight, bias, block(cut, weight, bias)


def alone(layers, images, weight, bias):
    outs = []
    for member, each in enumerate(images):
        given = {"weight": weight[member]} | ({} if bias is None else {"bias": bias[member]})
        outs.append(layers[2](layers[1](torch.func.functional_call(layers[0], given, (each,)))))
    return torch.stack(outs)


CASES = {
    "the paper's": (nn.Conv2d(1, 4, 2, padding=1), nn.MaxPool2d(2), (1, 8, 8)),
    "on four channels": (nn.Conv2d(4, 4, 2, padding=1), nn.MaxPool2d(2), (4, 4, 4)),
    "on one pixel": (nn.Conv2d(4, 4, 2, padding=1), nn.MaxPool2d(2), (4, 1, 1)),
    "without bias": (nn.Conv2d(2, 3, 2, bias=False), nn.MaxPool2d(2), (2, 6, 6)),
    "oblong": (nn.Conv2d(2, 3, (1, 3), padding=(2, 1)), nn.MaxPool2d((3, 2)), (2, 5, 7)),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_the_layers(case, first):
    conv, pool, shape = CASES[case]
    layers = [conv.double(), nn.ReLU(), pool]
    images = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    images.requires_grad_(not first)
    weight, bias, out = stacked(layers, images, first)
    expected = alone(layers, images, weight, bias)
    assert out.shape == expected.shape
    assert torch.allclose(out, expected, rtol=0, atol=1e-12)
    leaves = [leaf for leaf in (weight, bias, None if first else images) if leaf is not None]
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = torch.autograd.grad((expected * upstream).sum(), leaves)
    got = torch.autograd.grad((out * upstream).sum(), leaves)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(1, 4, 2, stride=2), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(1, 4, 2, dilation=2), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(2, 4, 2, groups=2), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(1, 4, 2, padding="same"), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(1, 4, 2, padding=1, padding_mode="circular"), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        [nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2, padding=1)],
        [nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)],
        [nn.Conv2d(1, 4, 2), nn.Tanh(), nn.MaxPool2d(2)],
        [nn.Conv2d(1, 4, 2), nn.ReLU()],
    ],
)
def test_other_layers_are_no_block(layers):
    shape = (layers[0].in_channels, 8, 8)
    assert DenseBlock.of(layers, shape, torch.zeros(()), first=True) is None


def test_a_large_image_is_no_block():
    layers = [nn.Conv2d(1, 4, 4, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    assert DenseBlock.of(layers, (1, 8, 8), torch.zeros(()), first=True) is not None
    assert DenseBlock.of(layers, (1, 64, 64), torch.zeros(()), first=True) is None
