"""What is kept of a map, and so what of it is scored: 24 binary digits of each pixel, as float32 has them.

Maps of networks that are explained in float64 would fill twice the disk, for digits that no score needs. Their range is
another matter: the gradient of a saturated softmax may be 1e-60 all over, which is zero in float32. So each map is kept
as float32 with a power of two of its own, by which its largest magnitude is between a half and one.

Every score is one of maps so rounded, whether they were kept in between or not: a run and :func:`xaibench.evaluate`
agree to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def packed(maps: Tensor) -> dict[str, Tensor]:
    """Maps as they are kept.

    Args:
        maps: ``[n, H, W]`` on the CPU.

    Returns:
        ``maps`` in float32 and ``powers`` ``[n]`` int16, where they were float64; else ``maps`` as they are. A pixel
        less than 1e-38 of its map's largest loses digits, and is zero from 1e-45 of it on.

    Example:
        >>> import torch
        >>> kept = packed(torch.tensor([[[3e-60, -6e-60]]], dtype=torch.float64))
        >>> kept["maps"].dtype, unpacked(kept)
        (torch.float32, tensor([[[ 3.0000e-60, -6.0000e-60]]], dtype=torch.float64))
    """
    import torch

    if maps.dtype != torch.float64:
        return {"maps": maps}
    values = maps.detach().numpy()
    peaks = np.abs(values).max(axis=(1, 2), initial=0.0)
    powers = np.where(np.isfinite(peaks), np.frexp(peaks)[1], 0)
    scaled = np.ldexp(values, -powers[:, None, None]).astype(np.float32)
    return {"maps": torch.from_numpy(scaled), "powers": torch.from_numpy(powers.astype(np.int16))}


def unpacked(kept: dict[str, Tensor]) -> Tensor:
    """The maps ``[n, H, W]`` of :func:`packed`, of the type that they were."""
    import torch

    maps = kept["maps"]
    if "powers" not in kept:
        return maps
    powers = kept["powers"].numpy().astype(np.int32)[:, None, None]
    return torch.from_numpy(np.ldexp(maps.numpy().astype(np.float64), powers))


def as_kept(maps: Tensor) -> Tensor:
    """Maps ``[n, H, W]`` as they come back from where they are kept.

    Example:
        >>> import torch
        >>> float(as_kept(torch.full((1, 1, 1), 0.1, dtype=torch.float64)))
        0.10000000149011612
    """
    return unpacked(packed(maps))
