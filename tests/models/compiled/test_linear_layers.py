"""A linear layer of a stack is the linear layer of each member, small or large."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from xaibench.models.compiled import linear_layers as module
from xaibench.models.compiled.linear_layers import LARGE, linear, product


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
