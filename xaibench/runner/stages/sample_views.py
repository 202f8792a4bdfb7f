"""Pictures of samples that are volumes.

The picture of a volume is three orthogonal slices through its ground truth: along each axis the slice with the most
voxels of the mask (the middle one of several), or the middle one if the mask is empty. They do not depend on the maps,
so that runs can be compared. With a known spacing, the pictures have its aspect ratio. The volume itself, reduced to at
most :data:`MOST_VOXELS` voxels, is kept for a slider.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.slices import cut_slices, heaviest_slices
from xaibench.runfolder.sample_file import MOST_VOXELS, SIDE, place_slices

if TYPE_CHECKING:
    from xaibench.data import Split

Floats: TypeAlias = NDArray[np.floating[Any]]


class SampleView:
    """The slices of a sample in its picture, with their sizes in pixels.

    Args:
        mask: ``[H, W]`` or ``[D, H, W]`` bool.
        sizes: Sizes of a pixel along the spatial axes.

    Attributes:
        mask: ``[H, W]`` or ``[D, H, W]``.
        slices: Slice d, row h and column w; empty for an image.
        lengths: ``(d, h, w)`` pixels of the axes in the picture.
    """

    def __init__(self, mask: NDArray[np.bool_], sizes: NDArray[np.float64]) -> None:
        self.mask = mask
        self.slices: tuple[int, ...] = ()
        if mask.ndim == 3:
            self.slices = heaviest_slices(mask, middle=True) if mask.any() else tuple(side // 2 for side in mask.shape)
        pixels = np.array(mask.shape) * sizes / sizes.min()
        self.lengths = _at_most(pixels, SIDE / (pixels[0] + pixels[1:].max()))

    def flat(self, volumes: Floats) -> Floats:
        """Return pictures ``[K, h + d, w + d]`` of volumes ``[K, D, H, W]``; images are returned as they are."""
        if not self.slices:
            return volumes
        d, h, w = self.lengths
        panels = zip(cut_slices(np.moveaxis(volumes, 0, -1), self.slices), ((h, w), (h, d), (d, w)), strict=True)
        return place_slices([_resize(np.moveaxis(panel, -1, 0), size) for panel, size in panels])

    def reduced(self, volumes: Floats) -> Floats:
        """Return volumes ``[K, D, H, W]`` with at most :data:`MOST_VOXELS` voxels."""
        pixels = np.array(self.lengths, dtype=np.float64)
        return _resize(volumes, _at_most(pixels, (MOST_VOXELS / pixels.prod()) ** (1 / 3)))


def _at_most(pixels: NDArray[np.float64], scale: float) -> tuple[int, ...]:
    """Return whole numbers of pixels, reduced by ``scale`` if it is below 1."""
    return tuple(max(1, int(length)) for length in pixels * min(1.0, scale))


def _resize(arrays: Floats, size: tuple[int, ...]) -> Floats:
    """Resize ``[K, ...]`` to the given sides by area averaging."""
    import torch

    values = torch.from_numpy(np.ascontiguousarray(arrays, dtype=np.float32))[None]
    return np.asarray(torch.nn.functional.interpolate(values, size=size, mode="area")[0].numpy())


def pixel_sizes(split: Split, samples: Sequence[int]) -> NDArray[np.float64]:
    """Return the sizes of a pixel along the spatial axes: the median spacing of volumes, otherwise 1."""
    import torch

    axes = split[samples[0]][1].ndim
    spacing = split.metric_inputs(torch.tensor(list(samples))).get("spacing") if axes == 3 else None
    return np.ones(axes) if spacing is None else np.median(np.asarray(spacing, dtype=np.float64), axis=0)
