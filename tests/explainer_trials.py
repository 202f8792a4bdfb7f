"""How the tests that run over every explainer try one: on which network, fitted to what, under which parameters."""

import functools
import importlib

import torch
from part_cases import ExplainerCase, case
from torch import nn

from xaibench import models
from xaibench.explainers import EXPLAINERS, build, explain

#: References are found by their name and listed nowhere, and promise the same.
NAMES = [*EXPLAINERS, "reliance"]
CASE = {name: case(EXPLAINERS, name, ExplainerCase()) for name in NAMES}


def network(kind="cnn", seed=0, classes=2):
    module, _, attribute = kind.partition(":")
    if not attribute and kind != "pooled":
        return models.build(kind, in_shape=(1, 8, 8), num_classes=classes, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if attribute:
            return getattr(importlib.import_module(module), attribute)((1, 8, 8), classes).eval()
        model = pooled_network(classes)
    model.explain_dtype = torch.float64
    return model


def pooled_network(classes):
    """Convolutions, global average pooling and a linear layer, which is what CAM is defined on."""
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))


def maps_of(name, model, images, targets, **settings):
    parameters = CASE[name].parameters | settings
    if hasattr(EXPLAINERS.resolve(name), "fit"):
        fitted = build(name).fit(model, [training_batch()])
        return explain(fitted, model, images, targets, device="cpu", **parameters)
    return explain(name, model, images, targets, device="cpu", **parameters)


@functools.cache
def training_batch():
    """Images, masks and targets that explainers are fitted to."""
    rng = torch.Generator().manual_seed(2)
    images = torch.randn(40, 1, 8, 8, generator=rng)
    return images, torch.rand(40, 8, 8, generator=rng) < 0.3, torch.arange(40) % 2


#: A network for all tests that leave it as it is.
shared_network = functools.cache(network)


def network_of(name, seed=0):
    return shared_network(CASE[name].network, seed)
