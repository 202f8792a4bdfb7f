"""Torch's global state, put back as it was: random generators and modes; and the choice of a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def isolated_rng(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators inside the block, and put their state back after it.

    Args:
        seed: Any integer >= 0.
        device: Where the block computes, if not on the CPU; its generator is seeded too.

    Example:
        >>> with isolated_rng(1):
        ...     first = torch.rand(2)
        >>> with isolated_rng(1):
        ...     bool((torch.rand(2) == first).all())
        True
    """
    cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        # Not torch.manual_seed, which would seed every accelerator for good.
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; after it, every module is in the mode it came in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def resolve_device(device: str | torch.device) -> torch.device:
    """The device meant by ``"auto"`` (CUDA where there is one, else the CPU), or by any name torch knows.

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)
