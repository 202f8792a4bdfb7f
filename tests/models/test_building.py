"""User-defined models: class, factory or module; their arguments and checks."""

from __future__ import annotations

import sys

import pytest
import torch
from refusals import refused

from xaibench.models import build
from xaibench.models.building import as_it_comes

CODE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, in_shape=(3, 8, 8), num_classes=2, bias=True):
        c, h, w = in_shape
        super().__init__(nn.Flatten(), nn.Linear(c * h * w, num_classes, bias=bias))

class Fixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(2)
    def forward(self, x):
        return self.layer(x.flatten(1))

def positional(shape, k):
    return Net(shape, k)

def only_classes(*, num_classes):
    return Net((3, 8, 8), num_classes)

def torchvision_like(*, weights=None, progress=True, **kwargs):
    return Net((3, 8, 8), 1000)

def old_torchvision(pretrained=False, progress=True):
    assert pretrained is False
    return Net()

def three(a, b, c):
    return Net()

def array(in_shape, num_classes):
    return [0.0]

class Bad(Net):
    def forward(self, x):
        return self.change(super().forward(x))

class Map(Bad):
    def change(self, z):
        return z[:, :, None, None]

class One(Bad):
    def change(self, z):
        return z[:, :1]

class Nan(Bad):
    def change(self, z):
        return z / 0 * 0

class Pair(Bad):
    def change(self, z):
        return z, z

instance = Net()
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda name, *args, **parameters: build(f"own_models:{name}", (3, 8, 8), *args, **parameters)
    sys.modules.pop("own_models", None)


@pytest.mark.parametrize("name", ["Net", "Fixed", "positional", "only_classes", "old_torchvision", "instance"])
def test_classes_factories_and_modules(own, name):
    model = own(name, 2)
    assert model(torch.zeros(5, 3, 8, 8)).shape == (5, 2)


@pytest.mark.parametrize("name", ["Net", "Fixed", "positional", "only_classes"])
def test_the_seed_decides_and_nothing_global_changes(own, name):
    before = torch.get_rng_state()
    first, again, other = (next(iter(own(name, 2, seed=seed).parameters())) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_module_is_copied(own):
    model = own("instance", 2)
    with torch.no_grad():
        model[1].weight.zero_()
    assert own("instance", 2)[1].weight.abs().max() > 0


def test_parameters_are_passed_on(own):
    assert own("Net", 2, bias=False)[1].bias is None
    refused(TypeError, "'bia'", lambda: own("Net", 2, bia=False))
    refused(TypeError, "bias", lambda: own("instance", 2, bias=False))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("three", TypeError, "three(a, b, c)"),
        ("number", TypeError, "number: got int"),
        ("array", TypeError, "array returned list"),
        ("torchvision_like", ValueError, "1000 logits"),
        ("Map", ValueError, "[2, 2, 1, 1]"),
        ("Pair", ValueError, "tuple of 2"),
        ("One", ValueError, "1 logits"),
        ("Nan", ValueError, "NaN"),
    ],
)
def test_what_does_not_fit_is_refused(own, name, kind, message):
    refused(kind, message, lambda: own(name, 2))


def test_images_it_does_not_take_are_named(own):
    refused(ValueError, "[2, 3, 9, 9]", lambda: build("own_models:instance", (3, 9, 9), 2))


@pytest.mark.parametrize(
    ("name", "stated", "built"),
    [
        ("efficientnet_lite0", {}, {"head": "pretrained"}),
        ("timm:resnet18", {"weights": "mine.pth"}, {"weights": "mine.pth", "head": "pretrained"}),
        ("resnet50", {"head": "new"}, {"head": "new"}),
        ("vgg16", {"fold": "pet"}, {"fold": "pet"}),
        ("cnn", {}, {}),
        ("generators.networks:Small", {}, {}),
        ("disconnected:resnet18", {"side": 3}, {"side": 3}),
    ],
)
def test_what_is_not_trained_keeps_the_last_layer_of_its_weights(name, stated, built):
    assert as_it_comes(name, stated) == built
