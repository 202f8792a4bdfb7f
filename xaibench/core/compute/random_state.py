"""Torch's global random generators, seeded for a while and put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
