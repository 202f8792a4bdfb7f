"""Figures of maps: one sample, the mean over samples, and maps over photographs (Zhang et al. 2023, Fig. 6).

The tables of maps on the page use the same tiles.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from xaibench.benchmarks.facets import is_moving
from xaibench.plots.figure_style import THEME, house_style
from xaibench.plots.files import shorten_label
from xaibench.runfolder.sample_file import SIDE, SampleCell
from xaibench.scores.results import RunResults

Floats: TypeAlias = NDArray[np.floating[Any]]
Levels: TypeAlias = NDArray[np.uint8]

#: Longest side of a map on the page in pixels; larger maps are reduced (but not in the image files).
TILE = 32
#: One sample, or the mean over the correctly classified samples.
MapKind: TypeAlias = Literal["example", "global"]
MAP_KINDS: tuple[MapKind, ...] = ("example", "global")
#: Content of a tile: the image, its mask, or an explainer's map.
TileKind: TypeAlias = Literal["image", "mask", "map"]
#: Subset, variant and model.
CellKey: TypeAlias = tuple[str, str, str]
#: Quantile of a map's magnitudes that gets the strongest color; with the maximum, one pixel could darken all others.
TOP = 0.995
_OUTLINE = np.array([0, 229, 255], dtype=np.uint8)
#: Distance of the tiles of a mosaic in pixels (half an inch at 150 dpi), and the gap around each.
_PITCH, _GAP = 75, 3


@functools.cache  # matplotlib copies a color map that is looked up, and a page draws ten thousand maps
def _color_map(name: str) -> Any:
    return matplotlib.colormaps[name]


@functools.cache
def palette() -> Levels:
    """Return ``[256, 3]``, the color of each level of a map; read-only."""
    colors = np.ascontiguousarray(_color_map("inferno")(np.arange(256), bytes=True)[:, :3])
    colors.flags.writeable = False
    return colors


def map_rows(run: RunResults, kind: MapKind) -> list[CellKey]:
    """Return the cells with maps of a kind, in display order.

    Mean maps leave out subsets with a moving pattern.
    """
    if kind == "example":
        return [cell for cell, samples in run.pictures.items() if samples.example is not None]
    return [cell for cell, samples in run.pictures.items() if len(samples.means) and not is_moving(samples.subset)]


def map_array(samples: SampleCell, kind: MapKind, name: str) -> Floats | None:
    """Return an array ``[H, W]`` of the example or of the means.

    Args:
        samples: Samples of a cell.
        kind: Example or mean.
        name: ``"image"`` (0 is zero, magnitude at most 1), ``"mask"`` (0 or 1), or an explainer.

    Returns:
        The array, or None if there is none.
    """
    if name == "mask":
        # With a fixed pattern, all samples have the same mask.
        return np.asarray(samples.masks[samples.example or 0], dtype=np.float64)
    if name == "image":
        if samples.example is None:
            return None
        return np.asarray(samples.images[samples.example, :, :, 0], dtype=np.float64) / 127.5 - 1
    if name not in samples.explainers:
        return None
    number = samples.explainers.index(name)
    if kind == "global":
        return np.asarray(samples.means[number], dtype=np.float64) if len(samples.means) else None
    return None if samples.example is None else np.asarray(samples.maps[samples.example, number], dtype=np.float64)


def color_tile(array: Floats, kind: TileKind) -> Levels:
    """Render an image, mask or map in color.

    Args:
        array: ``[H, W]``.
        kind: ``"image"`` (gray, zero is mid-gray, scaled by the largest magnitude), ``"mask"`` (white = important) or
            ``"map"`` (magnitude, scaled from zero to its own maximum).

    Returns:
        ``[H, W, 3]``. Without a finite value, or for an all-zero map, the color of zero.
    """
    array = np.nan_to_num(array, posinf=0.0, neginf=0.0)
    array = np.abs(array) if kind != "image" else array
    scaled = array / (np.abs(array).max() or 1.0)
    if kind == "image":
        scaled = (scaled + 1) / 2
    colors = _color_map("inferno" if kind == "map" else "gray")(scaled, bytes=True)
    return np.asarray(colors[..., :3], dtype=np.uint8)


def tile_kind(name: str) -> TileKind:
    """Return the kind of tile for a name of :func:`map_array`."""
    return "image" if name == "image" else "mask" if name == "mask" else "map"


def map_figure(run: RunResults, kind: MapKind, rows: Sequence[CellKey]) -> Figure | None:
    """Draw maps as a mosaic: one row per subset, variant and model; image, mask and explainers in columns.

    Args:
        run: The run.
        kind: ``"example"`` (one sample) or ``"global"`` (mean over the samples; no image column).
        rows: From :func:`map_rows`.

    Returns:
        The figure, or None without rows.
    """
    if not rows:
        return None
    columns: list[tuple[str, str]] = [("mask", "Mask"), *((name, part.label) for name, part in run.explainers.items())]
    if kind == "example":
        columns.insert(0, ("image", "Image"))
    side, left, top = 0.5, 1.9, 1.4
    width, height = left + side * len(columns) + 0.9, top + side * len(rows) + 0.1
    with house_style():
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        box = (left / width, 0.1 / height, side * len(columns) / width, side * len(rows) / height)
        axes = figure.add_axes(box)
        # All tiles are one image, since hundreds of images would take a second, and hundreds of Axes a minute.
        extent = (0, len(columns), len(rows), 0)
        axes.imshow(_mosaic(run, kind, rows, [name for name, _ in columns]), extent=extent, interpolation="none")
        axes.set_aspect("auto")
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(rows), 0)
        labels = [shorten_label(label) for _, label in columns]
        axes.set_xticks(np.arange(len(columns)) + 0.5, labels, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(rows)) + 0.5, [run.words_of(row) for row in rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=THEME["ink"], pad=4)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def _mosaic(run: RunResults, kind: MapKind, rows: Sequence[CellKey], columns: Sequence[str]) -> Levels:
    """Return ``[H, W, 4]``, the tiles of a mosaic with transparent gaps; one pixel is one dot of the PNG file."""
    inside, size = slice(_GAP, _PITCH - _GAP), (_PITCH - 2 * _GAP,) * 2
    whole = np.zeros((_PITCH * len(rows), _PITCH * len(columns), 4), np.uint8)
    for y, row in enumerate(rows):
        for x, name in enumerate(columns):
            array = map_array(run.pictures[row], kind, name)
            if array is not None:
                tile = Image.fromarray(color_tile(array, tile_kind(name))).convert("RGBA")
                tile = tile.resize(size, Image.Resampling.NEAREST)
                whole[y * _PITCH :, x * _PITCH :][inside, inside] = np.asarray(tile)
    return whole


def sheets(run: RunResults) -> dict[CellKey, SampleCell]:
    """Return the cells with a sheet of photographs, in display order."""
    return {cell: samples for cell, samples in run.pictures.items() if samples.sheet}


def overlay(samples: SampleCell, number: int, explainer: int | None, side: int) -> Levels:
    """Render a tile of the sheet.

    Args:
        samples: Samples of a cell.
        number: Index of the sample.
        explainer: Index of the explainer whose map is drawn half-transparent over the image (magnitude, scaled from its
            smallest value to its quantile :data:`TOP`; a constant map has the lowest color everywhere); None = the
            image alone.
        side: Longer side of the tile in pixels; smaller images are enlarged.

    Returns:
        ``[h, w, 3]``, with the mask's outline.
    """
    image, mask = samples.images[number], samples.masks[number]
    height, width = image.shape[:2]
    scale = side / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    smooth = Image.Resampling.BOX if scale >= 1 else Image.Resampling.LANCZOS
    tile = np.asarray(Image.fromarray(image).resize(size, smooth))
    if explainer is not None:
        magnitude = samples.maps[number, explainer].astype(np.float32)
        small = np.asarray(Image.fromarray(magnitude).resize(size, Image.Resampling.BOX))
        low, top = float(small.min()), float(np.quantile(small, TOP))
        span = (top if top > low else float(small.max())) - low
        heat = palette()[np.minimum(np.clip((small - low) / (span or 1.0), 0, 1) * 256, 255).astype(int)]
        tile = ((tile.astype(np.uint16) + heat) // 2).astype(np.uint8)
    if mask.any():
        inside = np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST)) > 0
        tile = np.where(_inner_border(inside)[..., None], _OUTLINE, tile)
    return np.asarray(tile, dtype=np.uint8)


def _inner_border(
    mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return the mask's pixels with a neighbor outside the mask; the image border does not count as outside."""
    padded = np.pad(mask, 1, mode="edge")
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.asarray(mask & ~core)


def sheet_explainers(run: RunResults, samples: SampleCell) -> dict[str, int]:
    """Return the explainers of a sheet in display order, with the indices of their maps."""
    return {name: samples.explainers.index(name) for name in run.explainers if name in samples.explainers}


def overlay_figure(run: RunResults, samples: SampleCell) -> Figure:
    """Draw the sheet: each image with the mask's outline, followed by every method's map over it."""
    names = sheet_explainers(run, samples)
    cell, left, top = 1.05, 0.1, 1.25
    columns = ["Image", *(shorten_label(run.explainers[name].label) for name in names)]
    line = cell * samples.images.shape[1] / max(samples.images.shape[1:3]) + 0.2
    width, height = left + cell * len(columns) + 0.7, top + line * len(samples.sheet)
    with house_style():
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for x, label in enumerate(columns):
            axes.text(
                left + cell * (x + 0.4), top - 0.06, label, rotation=40, rotation_mode="anchor", color=THEME["ink"]
            )
        for y, number in enumerate(samples.sheet):
            for x, explainer in enumerate([None, *names.values()]):
                tile = overlay(samples, number, explainer, SIDE)
                h, w = (0.96 * cell * length / SIDE for length in tile.shape[:2])
                corner = (left + x * cell, top + y * line)
                extent = (corner[0], corner[0] + w, corner[1] + h, corner[1])
                axes.imshow(tile, extent=extent, interpolation="none", aspect="auto")
            label = samples.labels[number]
            axes.text(left, top + (y + 1) * line - 0.03, label, va="bottom", color=THEME["soft"])
        axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """Encode an image as a ``data:`` address, in a format of Pillow (``"png"``, ``"webp"``, ``"jpeg"``)."""
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def tile_uri(colors: Levels) -> str:
    """Encode ``[H, W, 3]`` as a ``data:`` address: lossless PNG up to 16 pixels per side, otherwise WebP."""
    if max(colors.shape[:2]) <= 16:
        return data_uri(Image.fromarray(colors), "png", optimize=True)
    return data_uri(Image.fromarray(colors), "webp", quality=75)


def shrink(array: Floats, side: int = TILE) -> Floats:
    """Reduce ``[H, W]`` by means of whole blocks until no side exceeds ``side``; edges are padded.

    Example:
        >>> shrink(np.arange(16.0).reshape(4, 4), side=2)
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
    """
    factor = -(-max(array.shape) // side)
    if factor == 1:
        return array
    array = np.pad(array, [(0, -length % factor) for length in array.shape], mode="edge")
    height, width = (length // factor for length in array.shape)
    blocks = array.reshape(height, factor, width, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))
