"""A small network whose feature maps are told apart, and the maps that the grad-cam package makes of it."""

import importlib

import pytest
import torch
from torch import nn


def build(seed=0, pool=True):
    """A CNN whose weights are large enough for gradients that an epsilon of 1e-6 does not touch."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        convolutions = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.Tanh(), nn.Conv2d(4, 5, 3), nn.ReLU())
        rest = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)) if pool else (nn.Flatten(), nn.Linear(80, 3))
        model = nn.Sequential(convolutions, *rest).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=1.0)
        return model


def batch(n=3, dtype=torch.float64):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, 2, 14, 14, generator=rng, dtype=dtype)[:, :, :13, :], torch.arange(n) % 3


def pieces(model):
    return lambda image: model[0](image[None])[0].detach(), lambda maps: model[1:](maps[None])[0]


def unit(maps):
    """Each map scaled to [0, 1], as the grad-cam package does."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low)


def package_maps(name, model, layer, images, targets, **options):
    package = pytest.importorskip("pytorch_grad_cam", exc_type=ImportError)  # OpenCV may lack libGL
    targets_of = importlib.import_module("pytorch_grad_cam.utils.model_targets")
    outputs = [targets_of.ClassifierOutputTarget(int(target)) for target in targets]
    with getattr(package, name)(model, [] if layer is None else [layer], **options) as method:
        return torch.from_numpy(method(images.clone(), outputs))
