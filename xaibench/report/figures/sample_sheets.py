"""A sheet of samples: each image next to a copy with the mask outlined, and its class below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.core.slices import cut_slices, heaviest_slices
from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.maps import in_colors
from xaibench.runfolder.sample_file import place_slices

_SIDE, _GAP = 1.5, 0.28
_OUTLINE = np.array([255, 255, 0], dtype=np.float64) / 255


def sheet(
    images: NDArray[np.floating[Any]], masks: NDArray[np.bool_], labels: Sequence[str], *, columns: int = 4
) -> Figure:
    """Draw samples for visual inspection of masks and classes.

    Args:
        images: ``[N, C, H, W]`` with one or three channels. Images in [0, 1] are shown as they are; others (such as
            normalized images) are rescaled individually. Volumes ``[N, C, D, H, W]`` are shown as three slices through
            the most voxels of the mask: slice d, to its right column w, and below row h.
        masks: ``[N, H, W]`` bool. The outside is dimmed and the border drawn; an empty mask dims nothing.
        labels: One line per sample, drawn below it.
        columns: Number of samples per row.

    Returns:
        A figure without a window; ``figure.savefig("sheet.png")`` writes it.

    Raises:
        ValueError: If there is no sample, or the shapes do not match.

    Example:
        >>> figure = sheet(np.zeros((3, 1, 8, 8)), np.zeros((3, 8, 8), bool), ["T", "L", "T"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['T', 'L', 'T']
    """
    count = len(labels)
    if count == 0 or images.ndim not in (4, 5) or images.shape[1] not in (1, 3):
        raise ValueError(
            f"Expected at least one image [N, 1 or 3, H, W] (volumes: [N, 1 or 3, D, H, W]), got {list(images.shape)}, "
            f"{count} labels."
        )
    if masks.shape != (count, *images.shape[2:]) or len(images) != count:
        raise ValueError(
            f"Expected masks [N, H, W] and N labels for images {list(images.shape)}, got {list(masks.shape)} and "
            f"{count} labels."
        )
    if images.ndim == 5:
        images, masks = _cut_volumes(images, masks)
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    width, height = columns * (2 * _SIDE + _GAP), rows * (_SIDE + _GAP)
    with house_style():
        figure = Figure(figsize=(width, height), dpi=150)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        axes.axis("off")
        for index, label in enumerate(labels):
            left = (index % columns) * (2 * _SIDE + _GAP) + _GAP / 2
            top = (index // columns) * (_SIDE + _GAP) + _GAP / 4
            tile = np.concatenate(_image_and_outline(images[index], masks[index]), axis=1)
            axes.imshow(tile, extent=(left, left + 2 * _SIDE, top + _SIDE, top), interpolation="nearest")
            axes.text(left, top + _SIDE + 0.05, label, va="top", color=THEME["ink"])
        axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def _cut_volumes(
    volumes: NDArray[np.floating[Any]], masks: NDArray[np.bool_]
) -> tuple[NDArray[np.floating[Any]], NDArray[np.bool_]]:
    """Return pictures ``[N, C, H + D, W + D]`` and masks of volumes."""
    images, flat = [], []
    for volume, mask in zip(volumes, masks, strict=True):
        slices = heaviest_slices(mask, middle=True) if mask.any() else tuple(side // 2 for side in mask.shape)
        flat.append(place_slices(cut_slices(mask, slices)))
        images.append(np.stack([place_slices(cut_slices(channel, slices)) for channel in volume]))
    return np.stack(images), np.stack(flat)


def _image_and_outline(
    image: NDArray[np.floating[Any]], mask: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``[H, W, 3]`` twice: the image, and the image with its mask."""
    plain = in_colors(image)
    if not mask.any():
        return plain, plain
    marked = np.where(mask[..., None], plain, 0.45 * plain)
    marked[_outer_border(mask)] = _OUTLINE
    return plain, marked


def _outer_border(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels just outside the mask."""
    padded = np.pad(mask, 1)
    neighbors = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return np.asarray(neighbors & ~mask)
