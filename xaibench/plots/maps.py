"""``show``: a figure of images with the maps of several methods and the outlines of their masks."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from xaibench.core.checks import check_count, check_finite, check_map_shape
from xaibench.core.pictures import color_picture, cut_slices, heaviest_slices, name_slices
from xaibench.core.types import Array
from xaibench.plots.figures import THEME, encode, house_style, shorten_label

#: Inches: side of a tile, of an image and of three slices of a volume; gap between tiles, margins above and left.
_SIDE, _VOLUME_SIDE, _GAP, _TOP, _LEFT = 1.35, 2.3, 0.06, 0.3, 0.1
#: Characters of a line of a label.
_LINE = 26
#: Positions of the slider of a volume, besides the first one, and dots per inch of their pictures.
_POSITIONS, _POSITION_DPI = 12, 80
_OUTLINE = "#00c8e0"


class NotebookFigure(Figure):
    """A figure that notebooks display, whether or not pyplot is imported."""

    def _repr_png_(self) -> bytes:
        return encode(self, "png")


class VolumeFigure(NotebookFigure):
    """A figure of slices of volumes, which notebooks display with a slider over the slices."""

    content: _Content

    def _repr_html_(self) -> str:
        return _slider(self)


def show(
    images: Array,
    maps: Array | Mapping[str, Array] | None = None,
    masks: Array | None = None,
    *,
    labels: Sequence[str] | None = None,
    samples: int = 8,
    signed: bool = False,
    spacing: ArrayLike | None = None,
) -> Figure:
    """Draw images next to their maps: one row per sample, one column per method.

    A volume is drawn as three orthogonal slices: slice d, to its right column w, and below row h. All tiles of a sample
    show the same slices: along each axis the one with the largest total magnitude of the maps, each scaled to sum 1
    (the first of several); without maps, of the mask; otherwise the middle one. Maps are drawn over the image in gray,
    the more opaque the larger their magnitude. Notebooks show a slider that moves through the volume.

    Args:
        images: ``[N, C, H, W]`` or ``[N, C, D, H, W]`` with one or three channels, numpy or torch. Images in [0, 1] are
            shown as they are; others (such as normalized images) are rescaled individually.
        maps: ``[N, H, W]``, or several by name, ``{"mine": maps, "LIME": others}``. Each map's magnitude is scaled from
            zero to its own maximum, black to yellow: colors compare pixels of one map, not maps with each other.
        masks: ``[N, H, W]``, true for important pixels; their outline is drawn in every tile.
        labels: One line per sample, such as its class.
        samples: Number of samples to draw, from the first.
        signed: Show the sign: positive red, negative blue, zero white.
        spacing: Distance of neighboring pixels along each spatial axis, such as millimeters, or ``[N, axes]`` with a
            row per sample; the tiles get this aspect ratio. None: images are drawn as squares, voxels as cubes.

    Returns:
        A matplotlib figure, which notebooks display and ``.savefig("maps.png")`` writes. All-zero maps are labeled as
        such.

    Raises:
        ValueError: If there is no sample, the shapes do not match, a map is not finite, or a spacing is not positive.

    Example:
        >>> images, maps = np.zeros((2, 1, 8, 8)), np.eye(8)[None].repeat(2, axis=0)
        >>> figure = show(images, {"mine": maps, "none": 0 * maps}, labels=["T", "L"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['image', 'mine', 'none', 'T', 'zero everywhere', 'L', 'zero everywhere']
    """
    check_count("samples", samples)
    return _check_content(images, maps, masks, labels, samples, signed, spacing).draw()


def sheet(images: Array, masks: Array, labels: Sequence[str], *, columns: int = 4) -> Figure:
    """Draw samples for visual inspection of masks and classes: each image next to a copy with the mask outlined.

    Args:
        images: As for :func:`show`.
        masks: As for :func:`show`.
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
    content = _check_content(images, None, masks, labels, len(labels), False, None)
    side = _VOLUME_SIDE if content.is_volume else _SIDE
    columns = min(columns, len(labels))
    step, line = 2 * side + 3 * _LEFT, side + _TOP
    width, height = columns * step, -(-len(labels) // columns) * line
    with house_style():
        figure = Figure(figsize=(width, height), dpi=150)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for row, label in enumerate(labels):
            left, top = row % columns * step + _LEFT, row // columns * line + _LEFT / 2
            slices = content.chosen_slices(row) if content.is_volume else ()
            content.draw_tile(axes, row, None, slices, (left, top), is_outlined=False)
            content.draw_tile(axes, row, None, slices, (left + side + _GAP, top))
            axes.text(left, top + side + 0.05, label, va="top", color=THEME["ink"])
        axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def draw_tiles(
    image: Array, maps: Mapping[str, Array], mask: Array | None = None
) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Draw an image and its maps as pictures of their own, without text, as :func:`show` draws them.

    Args:
        image: ``[1 or 3, H, W]`` or ``[1 or 3, D, H, W]``.
        maps: ``[H, W]`` by name.
        mask: ``[H, W]``, true for important pixels.

    Returns:
        Names and PNG files, first of the image; and the names of the slices that they show of a volume.
    """
    several = {name: one[None] for name, one in maps.items()}
    content = _check_content(image[None], several, None if mask is None else mask[None], None, 1, False, None)
    side, slices = (_VOLUME_SIDE, content.chosen_slices(0)) if content.is_volume else (_SIDE, ())
    files = []
    for name in (None, *maps):
        with house_style():
            figure = Figure(figsize=(side, side))
            axes = figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            content.draw_tile(axes, 0, name, slices, (0.0, 0.0))
            axes.set(xlim=(0, side), ylim=(side, 0))
        files.append((name or "image", encode(figure, "png")))
    return files, name_slices(slices) if slices else []


def _check_content(
    images: Array,
    maps: Array | Mapping[str, Array] | None,
    masks: Array | None,
    labels: Sequence[str] | None,
    samples: int,
    signed: bool,
    spacing: ArrayLike | None,
) -> _Content:
    arrays = _to_numpy(images)
    if arrays.ndim not in (4, 5) or arrays.shape[1] not in (1, 3) or len(arrays) == 0:
        raise ValueError(
            f"images: got {list(arrays.shape)}, expected [N, 1 or 3, H, W] (volumes: [N, 1 or 3, D, H, W]) with N of "
            "at least 1."
        )
    named = {} if maps is None else dict(maps) if isinstance(maps, Mapping) else {"map": maps}
    shape = (len(arrays), *arrays.shape[2:])
    drawn = {name: _check_shape(name, given, shape) for name, given in named.items()}
    mask_arrays = np.zeros(shape, bool) if masks is None else _check_shape("masks", masks, shape) != 0
    if labels is not None and len(labels) != len(arrays):
        raise ValueError(f"labels: got {len(labels)}, expected one for each of {len(arrays)} images.")
    spaces = None if spacing is None else _check_spacing(spacing, shape)
    return _Content(arrays, drawn, mask_arrays, labels, min(samples, len(arrays)), signed, spaces)


@dataclass(frozen=True)
class _Content:
    """The checked content of a figure."""

    images: NDArray[Any]
    maps: Mapping[str, NDArray[Any]]
    masks: NDArray[np.bool_]
    labels: Sequence[str] | None
    rows: int
    signed: bool
    spacing: NDArray[np.float64] | None

    @property
    def sides(self) -> tuple[int, ...]:
        return self.images.shape[2:]

    @property
    def is_volume(self) -> bool:
        return len(self.sides) == 3

    def draw(self, slices: tuple[int, ...] | None = None) -> Figure:
        """Draw the figure, at given slices of all volumes, or at the slices of each sample's largest mass."""
        side = _VOLUME_SIDE if self.is_volume else _SIDE
        step = side + _GAP
        chosen = [(slices or self.chosen_slices(row)) if self.is_volume else () for row in range(self.rows)]
        words = [self.words(row, cut) for row, cut in enumerate(chosen)]
        left = 2 * _LEFT + 0.07 * max((len(line) for lines in words for line in lines), default=-1)
        with house_style():
            figure: Figure = (VolumeFigure if self.is_volume else NotebookFigure)(
                figsize=(left + step * (1 + len(self.maps)), _TOP + step * self.rows)
            )
            axes = figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            for column, name in enumerate(["image", *self.maps]):
                axes.text(left + column * step, _TOP - 0.08, shorten_label(name), color=THEME["ink"])
            for row, cut in enumerate(chosen):
                if words[row]:
                    text, middle = "\n".join(words[row]), _TOP + row * step + side / 2
                    axes.text(_LEFT, middle, text, va="center", color=THEME["soft"])
                for column, method in enumerate([None, *self.maps]):
                    self.draw_tile(axes, row, method, cut, (left + column * step, _TOP + row * step))
            axes.set(xlim=(0, figure.get_figwidth()), ylim=(figure.get_figheight(), 0))
        if isinstance(figure, VolumeFigure):
            figure.content = self
        return figure

    def words(self, row: int, slices: tuple[int, ...]) -> list[str]:
        """Return the lines to the left of a row."""
        return [
            *([] if self.labels is None else textwrap.wrap(self.labels[row], _LINE)),
            *(name_slices(slices) if slices else []),
        ]

    def chosen_slices(self, row: int) -> tuple[int, ...]:
        """Return the slices of a volume with the largest mass."""
        sums = [(np.abs(found[row].astype(np.float64)), found[row].any()) for found in self.maps.values()]
        masses = [mass / mass.sum() for mass, known in sums if known] or [self.masks[row].astype(np.float64)]
        mass = np.sum(masses, axis=0)
        return heaviest_slices(mass) if mass.any() else tuple(length // 2 for length in self.sides)

    def draw_tile(
        self,
        axes: Axes,
        row: int,
        name: str | None,
        slices: tuple[int, ...],
        corner: tuple[float, float],
        *,
        is_outlined: bool = True,
    ) -> None:
        """Draw an image, or a map by its name, with the outline of the mask: one panel, or three of a volume."""
        drawn, side = None if name is None else self.maps[name][row], _VOLUME_SIDE if slices else _SIDE
        colors = in_colors(self.images[row])
        if drawn is not None:
            colors = _color_map(drawn, self.signed) if not slices else _over(colors, drawn, self.signed)
        places = self.rectangles(row)
        for tile, mask, (x, y, width, height) in zip(
            _panels(colors, slices), _panels(self.masks[row], slices), places, strict=True
        ):
            left, top = corner[0] + x, corner[1] + y
            axes.imshow(tile, extent=(left, left + width, top + height, top), interpolation="nearest", aspect="auto")
            if is_outlined:
                segments = list(_outline_segments(mask, (left, top, width, height)))
                axes.add_collection(LineCollection(segments, colors=_OUTLINE, linewidths=1.2))
        if drawn is not None and not drawn.any():
            x, y = places[1][0] if slices else 0, places[2][1] if slices else 0  # the free corner next to the slices
            middle = (corner[0] + (x + side) / 2, corner[1] + (y + side) / 2)
            axes.text(*middle, "zero everywhere", ha="center", va="center", color="#888888")

    def rectangles(self, row: int) -> list[tuple[float, float, float, float]]:
        """Return the left, top, width and height of each panel in a tile, in inches."""
        if self.spacing is None and not self.is_volume:
            return [(0, 0, _SIDE, _SIDE)]
        lengths = np.array(self.sides) * (1.0 if self.spacing is None else self.spacing[row])
        if not self.is_volume:
            height, width = (float(length) for length in lengths * _SIDE / lengths.max())
            return [(0, 0, width, height)]
        longest = lengths[0] + lengths[1:].max()
        d, h, w = (float(length) for length in lengths * (_VOLUME_SIDE - _GAP / 2) / longest)
        return [(0, 0, w, h), (w + _GAP / 2, 0, d, h), (0, h + _GAP / 2, w, d)]


def _slider(figure: VolumeFigure) -> str:
    """Return HTML with a picture per position, of which a range input shows one; without scripts, the first."""
    content = figure.content
    count = min(_POSITIONS, max(content.sides))
    positions = zip(
        *(np.linspace(0, side - 1, count).round().astype(int).tolist() for side in content.sides), strict=True
    )
    figures = [figure, *(content.draw(slices) for slices in positions)]
    pictures = [base64.b64encode(encode(one, "png", dpi=_POSITION_DPI)).decode("ascii") for one in figures]
    shown = "".join(
        f'<img alt="Slices of volumes with their maps, position {index}" src="data:image/png;base64,{picture}" '
        f'style="max-width:100%;display:{"none" if index else "block"}">'
        for index, picture in enumerate(pictures)
    )
    script = (
        "this.closest(&quot;div&quot;).querySelectorAll(&quot;img&quot;).forEach((one, i) =&gt; "
        "{ one.style.display = i === Number(this.value) ? &quot;block&quot; : &quot;none&quot; })"
    )
    return (
        f'<div><p><label>Slices: largest mass <input type="range" min="0" max="{count}" value="0" oninput="{script}" '
        f'style="vertical-align:middle"> from the first to the last</label></p>{shown}</div>'
    )


def _to_numpy(values: Array) -> NDArray[Any]:
    """Convert to numpy from any device."""
    plain: Any = values
    return np.asarray(plain.detach().cpu() if hasattr(plain, "detach") else plain)


def _check_shape(name: str, given: Array, shape: tuple[int, ...]) -> NDArray[Any]:
    array = _to_numpy(given)
    check_map_shape(array, shape, name)
    check_finite(array, name)
    return array


def _check_spacing(spacing: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return ``[N, axes]``."""
    array, wanted = np.asarray(spacing, dtype=np.float64), (shape[0], len(shape) - 1)
    if array.shape not in (wanted[1:], wanted) or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(
            f"spacing: got {np.array2string(array, threshold=8)}, expected {wanted[1]} positive numbers, one per "
            f"spatial axis, or an array {list(wanted)} of them."
        )
    return np.broadcast_to(array, wanted)


def in_colors(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``[H, W, 3]`` in [0, 1] for an image ``[1 or 3, H, W]``; values outside [0, 1] are rescaled."""
    plain = np.repeat(np.moveaxis(image, 0, -1).astype(np.float64), 3 // len(image), axis=-1)
    low, high = plain.min(), plain.max()
    return plain if low >= 0 and high <= 1 else (plain - low) / ((high - low) or 1.0)


def _color_map(values: NDArray[Any], signed: bool) -> NDArray[np.float64]:
    """Return ``[H, W, 3]``, a map in color, scaled by its own maximum."""
    return color_picture(values, "signed" if signed else "map") / 255.0


def _over(colors: NDArray[np.float64], values: NDArray[Any], signed: bool) -> NDArray[np.float64]:
    """Return a map in color over its image in gray, the more opaque the larger its magnitude."""
    gray, opacity = colors.mean(-1, keepdims=True), np.abs(values)[..., None] / (np.abs(values).max() or 1.0)
    return np.asarray(opacity * _color_map(values, signed) + (1 - opacity) * gray)


def _panels(tile: NDArray[Any], slices: tuple[int, ...]) -> list[NDArray[Any]]:
    return list(cut_slices(tile, slices)) if slices else [tile]


def _outline_segments(mask: NDArray[np.bool_], place: tuple[float, float, float, float]) -> NDArray[np.float64]:
    """Return ``[S, 2, 2]``, the pixel sides on the boundary of the mask, in inches."""
    padded = np.pad(mask, 1).astype(np.int8)
    top, left = np.nonzero(np.diff(padded[:, 1:-1], axis=0))
    horizontal = np.stack([np.stack([left, top], -1), np.stack([left + 1, top], -1)], axis=1)
    top, left = np.nonzero(np.diff(padded[1:-1], axis=1))
    vertical = np.stack([np.stack([left, top], -1), np.stack([left, top + 1], -1)], axis=1)
    height, width = mask.shape
    inches: NDArray[np.float64] = np.concatenate([horizontal, vertical]) * place[2:] / (width, height) + place[:2]
    return inches
