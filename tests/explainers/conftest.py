import itertools

import pytest
import torch
from torch import nn

from xaibench.explainers import ExplainedOutput


class Functional(nn.Module):
    """Layers, flattened where the first linear one comes: as the released networks are written."""

    explain_dtype = torch.float64

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.flatten(1) if isinstance(layer, nn.Linear) else x)
        return x


def seeded(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


def build_cnn(channels=1):
    widths = (channels, 4, 4, 4, 4)
    convolutions = [
        (nn.Conv2d(before, after, 2, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2))
        for before, after in itertools.pairwise(widths)
    ]
    return Functional(*[layer for block in convolutions for layer in block], nn.Linear(4, 2))


def build_mlp():
    return Functional(
        *(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2)),
    )


@pytest.fixture
def cnn():
    """The 8x8 CNN, in training mode, float32."""
    return seeded(build_cnn)


@pytest.fixture
def rgb_cnn():
    return seeded(lambda: build_cnn(3))


@pytest.fixture
def mlp():
    """The 8x8 MLP, with dropout, in training mode, float32."""
    return seeded(build_mlp)


@pytest.fixture
def images():
    return torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)


@pytest.fixture
def targets():
    return torch.tensor([0, 1, 1, 0, 1, 0, 0])


@pytest.fixture
def linear():
    """Two classes, four pixels; the logits are weight times image."""

    def build(*rows):
        model = nn.Sequential(nn.Flatten(), nn.Linear(len(rows[0]), len(rows), bias=False)).double()
        model[1].weight.data = torch.tensor(rows, dtype=torch.float64)
        return model

    return build


@pytest.fixture(params=["cnn", "mlp"])
def double(request):
    """Each network as the explainers see it: float64, evaluation mode, ending in the probability."""
    model = request.getfixturevalue(request.param).double().eval()
    return model, ExplainedOutput(model)


@pytest.fixture
def curved():
    """A network with interactions between its six pixels."""

    class Curved(torch.nn.Module):
        def forward(self, x):
            a, b, c, d, e, f = x.flatten(1).T
            return torch.stack([a * b + torch.relu(c - d) * e + f, a - b * c], 1)

    x = torch.tensor([[1.0, -2.0, 3.0, 0.5, 1.5, -1.0], [0.2, 0.4, -1.0, -3.0, 2.0, 0.3]], dtype=torch.float64)
    return Curved(), x.reshape(2, 1, 2, 3), torch.tensor([0, 1])


@pytest.fixture
def captum_draws():
    """Captum draws from the global generator: seed it like ours, and put it back."""
    with torch.random.fork_rng():
        yield torch.manual_seed


@pytest.fixture
def two_layers():
    """x = (2, 1); hidden = relu(W x) = relu(4, -1, 1); logit = 1 h1 + 5 h2 - 2 h3."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    model[1].weight.data = torch.tensor([[1.0, 2.0], [-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    model[3].weight.data = torch.tensor([[1.0, 5.0, -2.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    return model, torch.tensor([2.0, 1.0], dtype=torch.float64).reshape(1, 1, 1, 2), torch.tensor([0])
