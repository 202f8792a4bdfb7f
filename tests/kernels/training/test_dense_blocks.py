"""A block as a matrix product equals the layers of the block."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from xaibench.kernels.training import dense_blocks as module
from xaibench.kernels.training.dense_blocks import LARGE, DenseBlock, linear, perceptron, product


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


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize(
    ("members", "inputs", "outputs"), [(3, 64, 32), (3, 64, 2), (2, 12, 3), (2, 20, 7), (2, 256, 128), (1, 256, 128)]
)
def test_outputs_and_gradients_are_those_of_the_layer(members, inputs, outputs, bias, learns):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(members, 50, 4, inputs // 4, generator=generator).requires_grad_(learns)
    weight = torch.randn(members, outputs, inputs, generator=generator).requires_grad_()
    given = [images, weight] + ([torch.randn(members, outputs, generator=generator).requires_grad_()] if bias else [])
    upstream = torch.randn(members, 50, outputs, generator=generator)
    assert (inputs * outputs >= LARGE) == (inputs == 256)
    got = linear(images, weight, given[2] if bias else None)
    doubles = [each.detach().double().requires_grad_(each.requires_grad) for each in given]
    expected = torch.stack([F.linear(x.flatten(1), *rest) for x, *rest in zip(*doubles, strict=True)])
    assert torch.allclose(got.double(), expected, rtol=0, atol=1e-4)
    learning = [[each for each in values if each.requires_grad] for values in (given, doubles)]
    found = torch.autograd.grad((got * upstream).sum(), learning[0])
    wanted = torch.autograd.grad((expected * upstream).sum(), learning[1])
    assert all(torch.allclose(a.double(), b, rtol=0, atol=1e-4) for a, b in zip(found, wanted, strict=True))


def test_products_of_views_and_without_onednn(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(30, 20, generator=generator).T, torch.randn(30, 10, generator=generator).T
    expected = (left.double() @ right.double().T).float()
    assert torch.allclose(product(left, right), expected, rtol=0, atol=1e-5)
    monkeypatch.setattr(module, "torch", SimpleNamespace(ops=SimpleNamespace(mkldnn=SimpleNamespace())))
    assert torch.allclose(product(left, right), expected, rtol=0, atol=1e-5)


def test_odd_sizes():
    generator = torch.Generator().manual_seed(0)
    columns, weight = torch.randn(2, 7, 5, generator=generator), torch.randn(2, 9, 7, generator=generator)
    given = [columns.requires_grad_(), weight.requires_grad_()]
    got, expected = linear(columns.mT, weight, None), columns.mT @ weight.mT
    assert torch.allclose(got, expected, rtol=0, atol=1e-5)
    gradients = [torch.autograd.grad(each.square().sum(), given) for each in (got, expected)]
    for found, wanted in zip(*gradients, strict=True):
        assert torch.allclose(found, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("widths", [(64, 32, 16, 8, 2), (12, 7, 5, 3), (12, 3, 6), (64, 2), (256, 128, 4), (8, 300, 2)])
def test_layers_with_relu_between_are_equal_to_one_after_another(widths, learns):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 50, widths[0], generator=generator).requires_grad_(learns)
    layers = [
        (
            torch.randn(3, after, before, generator=generator).requires_grad_(),
            torch.randn(3, after, generator=generator).requires_grad_() if after % 2 == 0 else None,
        )
        for before, after in itertools.pairwise(widths)
    ]
    one = images
    for number, (weight, bias) in enumerate(layers):
        one = linear(one.relu() if number else one, weight, bias)
    got = perceptron(images, layers)
    assert torch.equal(got, one)
    assert len(layers) == 1 or not torch.equal(got, got.relu())  # ReLU stands between layers, and not behind the last
    upstream = torch.randn(got.shape, generator=generator)
    given = [each for each in (images, *itertools.chain(*layers)) if each is not None and each.requires_grad]
    found, wanted = (torch.autograd.grad((each * upstream).sum(), given) for each in (got, one))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("hidden", [5, 12])  # images as they are, and turned into columns
def test_nan_goes_through_relu_as_in_torch(hidden):
    images = torch.ones(1, 4, 6)
    images[0, 1, 2] = torch.nan
    weights = [torch.ones(1, hidden, 6).requires_grad_(), torch.ones(1, 2, hidden).requires_grad_()]
    got = perceptron(images, [(weight, None) for weight in weights])
    assert got.isnan().any(2)[0].tolist() == [False, True, False, False]
    found = torch.autograd.grad(got.sum(), weights)
    one = linear(linear(images, weights[0], None).relu(), weights[1], None)
    wanted = torch.autograd.grad(one.sum(), weights)
    assert all(torch.equal(a.isnan(), b.isnan()) for a, b in zip(found, wanted, strict=True))
