"""Networks of layers one after the other, with random but fixed parameters."""

import numpy as np
import torch
from torch import nn


class Called(nn.Module):
    """A function as a layer, or a layer as a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def made(*layers, seed=0):
    """A network of those layers in float64, its parameters drawn with biases of both signs."""
    network = nn.Sequential(*layers).double()
    rng = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) / parameter[0].numel() ** 0.5
    return network


def mlp(bias=True, inputs=18):
    return made(
        nn.Flatten(), nn.Linear(inputs, 7, bias=bias), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(7, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias),
    )  # fmt: skip


def cnn(bias=True):
    return made(
        nn.Conv2d(2, 3, 2, padding=1, bias=bias), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, stride=2, padding=1, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3, bias=bias),
    )  # fmt: skip


def as_layers(network):
    """The network as the oracles of propagation read it."""
    layers = []
    for module in network:
        bias = getattr(module, "bias", None)
        bias = None if bias is None else bias.detach().numpy()
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().numpy()
            layers.append(("linear", weight, np.zeros(len(weight)) if bias is None else bias))
        elif isinstance(module, nn.Conv2d | nn.Conv3d):
            weight = module.weight.detach().numpy()
            bias = np.zeros(len(weight)) if bias is None else bias
            layers.append(("conv", weight, bias, module.stride[0], module.padding[0]))
        elif isinstance(module, nn.MaxPool2d | nn.MaxPool3d):
            layers.append(("maxpool", module.kernel_size))
        elif isinstance(module, nn.ReLU):
            layers.append(("relu",))
        elif isinstance(module, nn.Flatten):
            layers.append(("flatten",))
    return layers
