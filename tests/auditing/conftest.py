"""Audits for all tests that only read their results."""

import pytest
import torch
from oracles.tag_network import EXPLAINERS, tag_network, tagged_images
from torch import nn

import xaibench as xb


@pytest.fixture(scope="session")
def tag_audit():
    """An audit of the network that looks at the corner."""
    images, labels = tagged_images(24)
    return xb.audit(tag_network(), images, labels, explainers=EXPLAINERS, budget=20, progress=False)


@pytest.fixture(scope="session")
def written(tag_audit, tmp_path_factory):
    """The folder of its evidence sheet."""
    return tag_audit.write(tmp_path_factory.mktemp("audit")).parent


@pytest.fixture(scope="session")
def unlabeled_audit():
    """An audit of random weights on images without labels."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return xb.audit(network, tagged_images(12)[0], explainers=["input_x_gradient"], budget=10, progress=False)
