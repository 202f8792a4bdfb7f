"""Temporary seeding of the global random generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch


@contextmanager
def isolated_rng(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore their state after it.

    Args:
        seed: Any integer >= 0.
        device: Where the block computes, if not on the CPU; its generator is seeded, too.

    Example:
        >>> with isolated_rng(1):
        ...     first = torch.rand(2)
        >>> with isolated_rng(1):
        ...     bool((torch.rand(2) == first).all())
        True
    """
    with torch.random.fork_rng(devices=[]), _seeded_accelerator(seed, device):
        # Not torch.manual_seed, which would also seed all accelerators and not restore them.
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _seeded_accelerator(seed: int, device: torch.device | None) -> Iterator[None]:
    if device is None or device.type == "cpu":
        yield
        return
    module: Any = torch.get_device_module(device)
    where = () if device.type == "mps" else (device,)  # there is only one
    state = module.get_rng_state(*where)
    try:
        with module.device(device) if where else nullcontext():
            module.manual_seed(seed)
        yield
    finally:
        module.set_rng_state(state, *where)


@contextmanager
def seeded_globals(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of torch and NumPy inside the block and restore their state after it.

    Args:
        seed: Seed of both.
        device: As in :func:`isolated_rng`.

    Example:
        >>> import numpy as np
        >>> with seeded_globals(1):
        ...     first = np.random.random()
        >>> with seeded_globals(1):
        ...     np.random.random() == first
        True
    """
    state = np.random.get_state()
    with isolated_rng(seed, device):
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)
