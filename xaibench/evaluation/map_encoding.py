"""Encoding in which maps are stored: float32 with one power of two per float64 map.

float64 maps would need twice the disk space for digits that no score needs. But their range matters: the gradient of a
saturated softmax may be 1e-60 everywhere, which is zero in float32. So each map is stored as float32 together with a
power of two that scales its largest magnitude to between 0.5 and 1.

All scores are computed from maps rounded in this way, even if they are not stored in between. So the scores of a run
and of :func:`xaibench.evaluate` are bit-identical.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def encode_maps(maps: Tensor) -> dict[str, Tensor]:
    """Encode maps for storage.

    Args:
        maps: ``[n, H, W]`` on the CPU.

    Returns:
        For float64 maps, ``maps`` in float32 and ``powers`` ``[n]`` int16; for others, ``maps`` unchanged. Pixels below
        1e-38 of the map's largest magnitude lose digits; below 1e-45 they become zero.

    Example:
        >>> import torch
        >>> encoded = encode_maps(torch.tensor([[[3e-60, -6e-60]]], dtype=torch.float64))
        >>> encoded["maps"].dtype, decode_maps(encoded)
        (torch.float32, tensor([[[ 3.0000e-60, -6.0000e-60]]], dtype=torch.float64))
    """
    import torch

    if maps.dtype != torch.float64:
        return {"maps": maps}
    values = maps.detach().numpy()
    axes = tuple(range(1, values.ndim))
    peaks = np.abs(values).max(axis=axes, initial=0.0)
    powers = np.where(np.isfinite(peaks), np.frexp(peaks)[1], 0)
    scaled = np.ldexp(values, -np.expand_dims(powers, axes)).astype(np.float32)
    return {"maps": torch.from_numpy(scaled), "powers": torch.from_numpy(powers.astype(np.int16))}


def decode_maps(encoded: dict[str, Tensor]) -> Tensor:
    """Decode maps ``[n, H, W]`` encoded by :func:`encode_maps`, with their original dtype."""
    import torch

    maps = encoded["maps"]
    if "powers" not in encoded:
        return maps
    powers = np.expand_dims(encoded["powers"].numpy().astype(np.int32), tuple(range(1, maps.ndim)))
    return torch.from_numpy(np.ldexp(maps.numpy().astype(np.float64), powers))


def round_maps(maps: Tensor) -> Tensor:
    """Round maps ``[n, H, W]`` as storing and loading them would.

    Example:
        >>> import torch
        >>> float(round_maps(torch.full((1, 1, 1), 0.1, dtype=torch.float64)))
        0.10000000149011612
    """
    return decode_maps(encode_maps(maps))
