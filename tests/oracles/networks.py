"""Small networks for tests of what asks a model: some thousand parameters, random but fixed weights."""

import copy

import torch
from torch import nn

from xaibench.metrics.shared.model_scores import random_generator


def small_cnn(channels=2, classes=3, seed=0, norm=True):
    """Convolutions with batch normalization (whose statistics are not the initial ones), in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Conv2d(channels, 6, 3, padding=1)]
        layers += [nn.BatchNorm2d(6)] if norm else []
        layers += [nn.ReLU(), nn.Conv2d(6, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        layers += [nn.Linear(20, classes)]
        network = nn.Sequential(*layers)
        if norm:
            network[1].running_mean.normal_(0, 0.3)
            network[1].running_var.uniform_(0.5, 2)
            network[1].weight.data.uniform_(0.5, 2)
        network[-1].weight.data.mul_(8)  # so that probabilities are neither 0, 1/K nor 1
        return network.eval()


def batch(n=5, channels=2, size=(7, 6), classes=3, seed=0):
    """Images, maps without ties and targets."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, channels, *size, generator=generator)
    maps = torch.randn(n, *size, generator=generator)
    return images, maps, torch.randint(0, classes, (n,), generator=generator)


def forgotten(model, places):
    """The states of a network whose layers forget one after the other, in this order, as the library draws them."""
    twin = copy.deepcopy(model)
    with torch.random.fork_rng():
        for index, place in enumerate(places):
            torch.manual_seed(int(random_generator(0, index).integers(2**63)))
            twin[place].reset_parameters()
            yield copy.deepcopy(twin)
