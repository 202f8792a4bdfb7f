import pytest
import torch
from torch import nn


@pytest.fixture
def mlp():
    """An MLP for 8x8 images, with dropout, in training mode, float32."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3)),
            *(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3)),
            *(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2)),
        )


@pytest.fixture
def images():
    return torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)


@pytest.fixture
def targets():
    return torch.tensor([0, 1, 1, 0, 1, 0, 0])
