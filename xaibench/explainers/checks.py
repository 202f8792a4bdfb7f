"""Validate the inputs of an explanation (images, targets) and its output (maps)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from xaibench.core.checks import plain_array
from xaibench.core.messages import listed
from xaibench.explainers.base import Channels, reduce_channels


def check_images(images: Any) -> Tensor:
    """Return the images as a tensor ``[N, C, H, W]``, or ``[N, C, D, H, W]`` for volumes.

    Raises:
        ValueError: If the shape is wrong, the batch is empty, or a value is not finite.
        TypeError: If they are not a floating-point tensor or array.
    """
    x = _as_tensor(images, "images").detach()
    if x.ndim not in (4, 5) or x.numel() == 0:
        raise ValueError(
            f"images: got {list(x.shape)}, expected [N, C, H, W] (volumes: [N, C, D, H, W]) with at least one image."
        )
    if not x.is_floating_point():
        raise TypeError(f"images: got {x.dtype}, expected floating numbers, scaled as the model expects them.")
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(f"images: NaN or infinite numbers in samples {_some(~finite)}; expected finite numbers.")
    return x


def _as_tensor(values: Any, what: str) -> Tensor:
    if not isinstance(values, Tensor | np.ndarray):
        raise TypeError(
            f"{what}: got {type(values).__name__}, expected a torch tensor or a numpy array; torch.as_tensor makes one."
        )
    if isinstance(values, Tensor):
        return values
    # A copy: a read-only or reversed array cannot be shared with torch.
    return torch.from_numpy(np.array(plain_array(values, what)))


def check_returned_maps(
    maps: Any, images: Tensor, channels: Channels | None, name: str, *, own_size: bool = False
) -> Tensor:
    """Return the result of an explainer as maps on the CPU, reducing channels if there are any.

    Args:
        maps: The result of the explainer.
        images: ``[N, C, H, W]`` for maps ``[N, H, W]``, or ``[N, C, D, H, W]`` for maps ``[N, D, H, W]``.
        channels: How the channels become one map.
        name: Name of the explainer, for messages.
        own_size: Whether the maps may differ from the images in size (``resize=None``).

    Raises:
        ValueError: If the shape is wrong or a value is not finite; the message names the explainer.
    """
    result: Tensor = torch.as_tensor(maps).detach().cpu()
    if result.ndim == images.ndim and result.shape[0] == len(images) and result.shape[2:] == images.shape[2:]:
        result = reduce_channels(result, channels or "sum")
    own_size = own_size and result.ndim == images.ndim - 1
    expected = (len(images), *(result.shape[1:] if own_size else images.shape[2:]))
    if tuple(result.shape) != expected:
        axes = "[N, H, W]" if images.ndim == 4 else "[N, D, H, W]"
        raise ValueError(f"{name} returned maps {list(result.shape)}, expected {list(expected)} ({axes}).")
    finite = result.isfinite().flatten(1).all(1)
    if not finite.all():
        hint = (
            ""
            if result.dtype == torch.float64
            else f" They may have left the range of {result.dtype}: try dtype=torch.float64."
        )
        raise ValueError(f"{name} returned NaN or infinite numbers for samples {_some(~finite)}.{hint}")
    return result.contiguous()


def _some(which: Tensor) -> str:
    return listed(which.nonzero().flatten().tolist(), most=5)
