"""One audit for all tests that read its result."""

import pytest
from oracles.tag_network import EXPLAINERS, tag_network, tagged_images

import xaibench as xb


@pytest.fixture(scope="session")
def tag_audit():
    """An audit of the network that looks at the corner."""
    images, labels = tagged_images(24)
    return xb.audit(tag_network(), images, labels, explainers=EXPLAINERS, budget=20, progress=False)
