"""``show``: a figure of images with the maps of several methods and the outlines of their masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.core.checks import check_count
from xaibench.core.figure_style import THEME, house_style
from xaibench.plots.files import encode, shorten_label

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: Inches: side of a tile, gap between tiles, margins above and left.
_SIDE, _GAP, _TOP, _LEFT = 1.35, 0.06, 0.3, 0.1
_OUTLINE = "#00c8e0"


class NotebookFigure(Figure):
    """A figure that notebooks display, whether or not pyplot is imported."""

    def _repr_png_(self) -> bytes:
        return encode(self, "png")


def show(
    images: Array,
    maps: Array | Mapping[str, Array] | None = None,
    masks: Array | None = None,
    *,
    labels: Sequence[str] | None = None,
    samples: int = 8,
    signed: bool = False,
) -> Figure:
    """Draw images next to their maps: one row per sample, one column per method.

    Args:
        images: ``[N, C, H, W]`` with one or three channels, numpy or torch. Images in [0, 1] are shown as they are;
            others (such as normalized images) are rescaled individually.
        maps: ``[N, H, W]``, or several by name, ``{"mine": maps, "LIME": others}``. Each map's magnitude is scaled from
            zero to its own maximum, black to yellow: colors compare pixels of one map, not maps with each other.
        masks: ``[N, H, W]``, true for important pixels; their outline is drawn in every tile.
        labels: One line per sample, such as its class.
        samples: Number of samples to draw, from the first.
        signed: Show the sign: positive red, negative blue, zero white.

    Returns:
        A matplotlib figure, which notebooks display and ``.savefig("maps.png")`` writes. All-zero maps are labeled as
        such.

    Raises:
        ValueError: If there is no sample, the shapes do not match, or a map is not finite.

    Example:
        >>> images, maps = np.zeros((2, 1, 8, 8)), np.eye(8)[None].repeat(2, axis=0)
        >>> figure = show(images, {"mine": maps, "none": 0 * maps}, labels=["T", "L"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['image', 'mine', 'none', 'T', 'zero everywhere', 'L', 'zero everywhere']
    """
    check_count("samples", samples)
    arrays = _to_numpy(images)
    if arrays.ndim != 4 or arrays.shape[1] not in (1, 3) or len(arrays) == 0:
        raise ValueError(f"images: got {list(arrays.shape)}, expected [N, 1 or 3, H, W] with N of at least 1.")
    named = {} if maps is None else dict(maps) if isinstance(maps, Mapping) else {"map": maps}
    shape = (len(arrays), *arrays.shape[2:])
    drawn = {name: _check_shape(name, given, shape) for name, given in named.items()}
    mask_arrays = None if masks is None else _check_shape("masks", masks, shape) != 0
    if labels is not None and len(labels) != len(arrays):
        raise ValueError(f"labels: got {len(labels)}, expected one for each of {len(arrays)} images.")
    rows = min(samples, len(arrays))
    step = _SIDE + _GAP
    left = 2 * _LEFT + 0.07 * max((len(shorten_label(label)) for label in labels or ()), default=-1)
    with house_style():
        figure = NotebookFigure(figsize=(left + step * (1 + len(drawn)), _TOP + step * rows))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for column, name in enumerate(["image", *drawn]):
            axes.text(left + column * step, _TOP - 0.08, shorten_label(name), color=THEME["ink"])
        for row in range(rows):
            mask = np.zeros(shape[1:], bool) if mask_arrays is None else mask_arrays[row]
            if labels is not None:
                axes.text(
                    _LEFT, _TOP + row * step + _SIDE / 2, shorten_label(labels[row]), va="center", color=THEME["soft"]
                )
            tiles = [in_colors(arrays[row]), *(_color_map(found[row], signed) for found in drawn.values())]
            for column, tile in enumerate(tiles):
                corner = (left + column * step, _TOP + row * step)
                zero = column > 0 and not list(drawn.values())[column - 1][row].any()
                _draw_tile(axes, tile, corner, "zero everywhere" if zero else "")
                axes.add_collection(
                    LineCollection(list(_outline_segments(mask, corner)), colors=_OUTLINE, linewidths=1.2)
                )
        axes.set(xlim=(0, figure.get_figwidth()), ylim=(figure.get_figheight(), 0))
    return figure


def _to_numpy(values: Array) -> NDArray[Any]:
    """Convert to numpy from any device."""
    plain: Any = values
    return np.asarray(plain.detach().cpu() if hasattr(plain, "detach") else plain)


def _check_shape(name: str, given: Array, shape: tuple[int, ...]) -> NDArray[Any]:
    found = _to_numpy(given)
    if found.shape != shape:
        raise ValueError(f"{name}: got {list(found.shape)}, expected {list(shape)}, one [H, W] for each image.")
    if not np.isfinite(found).all():
        raise ValueError(
            f"{name}: received NaN or infinite values, expected finite ones; check the method that computed the maps."
        )
    return found


def in_colors(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``[H, W, 3]`` in [0, 1] for an image ``[1 or 3, H, W]``; values outside [0, 1] are rescaled."""
    plain = np.repeat(np.moveaxis(image, 0, -1).astype(np.float64), 3 // len(image), axis=2)
    low, high = plain.min(), plain.max()
    return plain if low >= 0 and high <= 1 else (plain - low) / ((high - low) or 1.0)


def _color_map(found: NDArray[Any], signed: bool) -> NDArray[np.float64]:
    """Return ``[H, W, 3]``, a map in color, scaled by its own maximum."""
    scaled = found / (np.abs(found).max() or 1.0)
    values, name = ((scaled + 1) / 2, "RdBu_r") if signed else (np.abs(scaled), "inferno")
    return np.asarray(matplotlib.colormaps[name](values)[..., :3], dtype=np.float64)


def _outline_segments(mask: NDArray[np.bool_], corner: tuple[float, float]) -> NDArray[np.float64]:
    """Return ``[S, 2, 2]``, the pixel sides on the boundary of the mask, in inches."""
    padded = np.pad(mask, 1).astype(np.int8)
    top, left = np.nonzero(np.diff(padded[:, 1:-1], axis=0))
    horizontal = np.stack([np.stack([left, top], -1), np.stack([left + 1, top], -1)], axis=1)
    top, left = np.nonzero(np.diff(padded[1:-1], axis=1))
    vertical = np.stack([np.stack([left, top], -1), np.stack([left, top + 1], -1)], axis=1)
    height, width = mask.shape
    inches: NDArray[np.float64] = np.concatenate([horizontal, vertical]) * _SIDE / (width, height) + corner
    return inches


def _draw_tile(axes: Axes, tile: NDArray[np.float64], corner: tuple[float, float], words: str) -> None:
    x, y = corner
    axes.imshow(tile, extent=(x, x + _SIDE, y + _SIDE, y), interpolation="nearest", aspect="auto")
    if words:
        axes.text(x + _SIDE / 2, y + _SIDE / 2, words, ha="center", va="center", color="#888888")
