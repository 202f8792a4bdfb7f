"""Baseline images of gradient and propagation methods."""

from __future__ import annotations

import torch
from torch import Tensor


def prepare_baselines(baselines: Tensor | None, images: Tensor) -> Tensor:
    """Return baselines ``[B, C, H, W]`` with dtype and device of the images; zeros if there are none."""
    if baselines is None:
        return torch.zeros_like(images[:1])
    if baselines.shape[1:] != images.shape[1:] or len(baselines) == 0:
        size = ", ".join(map(str, images.shape[1:]))
        raise ValueError(f"baselines: got {list(baselines.shape)}, expected [B, {size}] with B >= 1.")
    return baselines.to(images)
