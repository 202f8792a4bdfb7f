"""``show``: images with the maps that methods make of them, and what is truly important outlined, to look at."""

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
from xaibench.report.draw.figure_style import THEME, house_style, save, short
from xaibench.report.draw.sample_sheets import in_colours

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: Side of a tile and the gap between two, in inches; what stands above and beside them.
_SIDE, _GAP, _TOP, _LEFT = 1.35, 0.06, 0.3, 0.1
_OUTLINE = "#00c8e0"


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        return save(self, "png")


def show(
    images: Array,
    maps: Array | Mapping[str, Array] | None = None,
    masks: Array | None = None,
    *,
    labels: Sequence[str] | None = None,
    samples: int = 8,
    signed: bool = False,
) -> Figure:
    """Draw images beside their maps: a row a sample, a column a method.

    Args:
        images: ``[N, C, H, W]`` with one channel or three, numpy or torch. Those in [0, 1] are shown as they are;
            others (generated sets, normalised images) are scaled to it, each by itself.
        maps: ``[N, H, W]``, or several by name, ``{"mine": maps, "LIME": others}``. A map's magnitude is scaled from
            zero to its own largest value, black to yellow: colours compare pixels of one map, not maps with each other.
        masks: ``[N, H, W]``, true where a pixel is important; its outline is drawn in every tile.
        labels: A line beside each sample, such as its class.
        samples: Only the first so many.
        signed: Show the sign: positive red, negative blue, zero white.

    Returns:
        A figure of matplotlib, which a notebook shows and ``.savefig("maps.png")`` writes. A map that is zero
        everywhere says so.

    Raises:
        ValueError: If there is no sample, the shapes do not belong together, or a map is not finite.

    Example:
        >>> images, maps = np.zeros((2, 1, 8, 8)), np.eye(8)[None].repeat(2, axis=0)
        >>> figure = show(images, {"mine": maps, "none": 0 * maps}, labels=["T", "L"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['image', 'mine', 'none', 'T', 'zero everywhere', 'L', 'zero everywhere']
    """
    check_count("samples", samples)
    pictures = _array(images)
    if pictures.ndim != 4 or pictures.shape[1] not in (1, 3) or len(pictures) == 0:
        raise ValueError(f"images: got {list(pictures.shape)}, expected [N, 1 or 3, H, W] with N of at least 1.")
    named = {} if maps is None else dict(maps) if isinstance(maps, Mapping) else {"map": maps}
    shape = (len(pictures), *pictures.shape[2:])
    drawn = {name: _checked(name, given, shape) for name, given in named.items()}
    truths = None if masks is None else _checked("masks", masks, shape) != 0
    if labels is not None and len(labels) != len(pictures):
        raise ValueError(f"labels: got {len(labels)}, expected one for each of {len(pictures)} images.")
    rows = min(samples, len(pictures))
    step = _SIDE + _GAP
    left = 2 * _LEFT + 0.07 * max((len(short(label)) for label in labels or ()), default=-1)
    with house_style():
        figure = NotebookFigure(figsize=(left + step * (1 + len(drawn)), _TOP + step * rows))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for column, name in enumerate(["image", *drawn]):
            axes.text(left + column * step, _TOP - 0.08, short(name), color=THEME["ink"])
        for row in range(rows):
            truth = np.zeros(shape[1:], bool) if truths is None else truths[row]
            if labels is not None:
                axes.text(_LEFT, _TOP + row * step + _SIDE / 2, short(labels[row]), va="center", color=THEME["soft"])
            tiles = [in_colours(pictures[row]), *(_coloured(found[row], signed) for found in drawn.values())]
            for column, tile in enumerate(tiles):
                corner = (left + column * step, _TOP + row * step)
                zero = column > 0 and not list(drawn.values())[column - 1][row].any()
                _tile(axes, tile, corner, "zero everywhere" if zero else "")
                axes.add_collection(LineCollection(list(_edges(truth, corner)), colors=_OUTLINE, linewidths=1.2))
        axes.set(xlim=(0, figure.get_figwidth()), ylim=(figure.get_figheight(), 0))
    return figure


def _array(values: Array) -> NDArray[Any]:
    """As numpy has it, from whichever device."""
    plain: Any = values
    return np.asarray(plain.detach().cpu() if hasattr(plain, "detach") else plain)


def _checked(name: str, given: Array, shape: tuple[int, ...]) -> NDArray[Any]:
    found = _array(given)
    if found.shape != shape:
        raise ValueError(f"{name}: got {list(found.shape)}, expected {list(shape)}, one [H, W] for each image.")
    if not np.isfinite(found).all():
        raise ValueError(f"{name}: NaN or infinite numbers, expected finite ones; find out why there are such.")
    return found


def _coloured(found: NDArray[Any], signed: bool) -> NDArray[np.float64]:
    """``[H, W, 3]``: a map in colours, by its own largest magnitude."""
    scaled = found / (np.abs(found).max() or 1.0)
    values, name = ((scaled + 1) / 2, "RdBu_r") if signed else (np.abs(scaled), "inferno")
    return np.asarray(matplotlib.colormaps[name](values)[..., :3], dtype=np.float64)


def _edges(truth: NDArray[np.bool_], corner: tuple[float, float]) -> NDArray[np.float64]:
    """``[S, 2, 2]``: the sides of pixels that lie between what is important and what is not, in inches."""
    padded = np.pad(truth, 1).astype(np.int8)
    top, left = np.nonzero(np.diff(padded[:, 1:-1], axis=0))
    lying = np.stack([np.stack([left, top], -1), np.stack([left + 1, top], -1)], axis=1)
    top, left = np.nonzero(np.diff(padded[1:-1], axis=1))
    standing = np.stack([np.stack([left, top], -1), np.stack([left, top + 1], -1)], axis=1)
    height, width = truth.shape
    inches: NDArray[np.float64] = np.concatenate([lying, standing]) * _SIDE / (width, height) + corner
    return inches


def _tile(axes: Axes, tile: NDArray[np.float64], corner: tuple[float, float], words: str) -> None:
    x, y = corner
    axes.imshow(tile, extent=(x, x + _SIDE, y + _SIDE, y), interpolation="nearest", aspect="auto")
    if words:
        axes.text(x + _SIDE / 2, y + _SIDE / 2, words, ha="center", va="center", color="#888888")
