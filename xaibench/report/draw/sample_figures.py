"""Maps of samples as figures: one sample, the mean over samples, and maps over photographs (Zhang et al. 2023, Fig. 6).

What the page shows of them as tables is made of the same tiles.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from xaibench.report.draw.figure_style import THEME, house_style, short
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.sample_file import SIDE, SampleCell

Floats: TypeAlias = NDArray[np.floating[Any]]
Levels: TypeAlias = NDArray[np.uint8]

#: Longest side of a map on the page in pixels; larger ones are reduced (the files beside the page are not).
TILE = 32
#: One sample, or the mean over the samples that count.
MapKind: TypeAlias = Literal["example", "global"]
#: What one tile shows: the image, its mask, or an explainer's map.
TileKind: TypeAlias = Literal["image", "mask", "map"]
Cell: TypeAlias = tuple[str, str, str]
#: The quantile of a map's magnitudes that gets the strongest colour: one extreme pixel would leave all others dark.
TOP = 0.995
_OUTLINE = np.array([0, 229, 255], dtype=np.uint8)


@functools.cache  # matplotlib sets up the colours anew each time, and a leaderboard draws ten thousand maps
def palette() -> Levels:
    """``[256, 3]``: the colour of each level of a map; read-only."""
    colours = np.ascontiguousarray(matplotlib.colormaps["inferno"](np.arange(256), bytes=True)[:, :3])
    colours.flags.writeable = False
    return colours


def map_rows(run: RunResults, kind: MapKind) -> list[Cell]:
    """The cells that have maps of a kind, in the order to show.

    Global maps leave out scenarios whose pattern moves: a mean over places shows nothing.
    """
    if kind == "example":
        return [cell for cell, samples in run.pictures.items() if samples.example is not None]
    return [cell for cell, samples in run.pictures.items() if len(samples.means) and samples.scenario != "rigid"]


def map_array(samples: SampleCell, kind: MapKind, name: str) -> Floats | None:
    """An array ``[H, W]`` of the example or of the means.

    Args:
        samples: Of a cell.
        kind: Which.
        name: ``"image"`` (zero is zero, at most 1 in magnitude), ``"mask"`` (0 or 1), or an explainer.

    Returns:
        The array, or None where there is none.
    """
    if name == "mask":
        # Where the pattern has its place, any sample tells it.
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


def colour_tile(array: Floats, kind: TileKind) -> Levels:
    """An image, mask or map as colours.

    Args:
        array: ``[H, W]``.
        kind: ``"image"`` (grey, zero is mid-grey, scaled by the largest magnitude), ``"mask"`` (white = important) or
            ``"map"`` (magnitude, scaled from zero to its own maximum).

    Returns:
        ``[H, W, 3]``. Without a finite value, or for a map that is zero everywhere, the colour of zero.
    """
    array = np.nan_to_num(array, posinf=0.0, neginf=0.0)
    array = np.abs(array) if kind != "image" else array
    scaled = array / (np.abs(array).max() or 1.0)
    if kind == "image":
        scaled = (scaled + 1) / 2
    colours = matplotlib.colormaps["inferno" if kind == "map" else "gray"](scaled, bytes=True)
    return np.asarray(colours[..., :3], dtype=np.uint8)


def tile_kind(name: str) -> TileKind:
    """How what :func:`map_array` calls by this name is coloured."""
    return "image" if name == "image" else "mask" if name == "mask" else "map"


def map_figure(run: RunResults, kind: MapKind, rows: Sequence[Cell]) -> Figure | None:
    """Maps as a mosaic: a row for each scenario, background and model; image, mask and explainers in columns.

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
        # One axes with tiles as images in data coordinates: hundreds of axes would take a minute.
        for y, row in enumerate(rows):
            for x, (name, _) in enumerate(columns):
                array = map_array(run.pictures[row], kind, name)
                if array is not None:
                    extent = (x + 0.04, x + 0.96, y + 0.96, y + 0.04)
                    colours = colour_tile(array, tile_kind(name))
                    axes.imshow(colours, extent=extent, interpolation="none", aspect="auto")
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(rows), 0)
        labels = [short(label) for _, label in columns]
        axes.set_xticks(np.arange(len(columns)) + 0.5, labels, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(rows)) + 0.5, [run.words_of(row) for row in rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=THEME["ink"], pad=4)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def sheets(run: RunResults) -> dict[Cell, SampleCell]:
    """The cells that have a sheet of photographs, in the order to show."""
    return {cell: samples for cell, samples in run.pictures.items() if samples.sheet}


def overlay(samples: SampleCell, number: int, explainer: int | None, side: int) -> Levels:
    """A tile of the sheet.

    Args:
        samples: Of a cell.
        number: Which of them.
        explainer: Whose map (by its number) lies half-transparent over the image (its magnitude, from its smallest to
            its quantile :data:`TOP`; a constant map has the colour of nothing everywhere); None = the image alone.
        side: The longer side of the tile in pixels; smaller images are enlarged.

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
        tile = np.where(_rim(inside)[..., None], _OUTLINE, tile)
    return np.asarray(tile, dtype=np.uint8)


def _rim(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Pixels of the mask with a neighbour outside of it; the edge of the image is no outside."""
    padded = np.pad(mask, 1, mode="edge")
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.asarray(mask & ~core)


def shown(run: RunResults, samples: SampleCell) -> dict[str, int]:
    """The explainers of a sheet in the order to show, and the number of each one's maps."""
    return {name: samples.explainers.index(name) for name in run.explainers if name in samples.explainers}


def overlay_figure(run: RunResults, samples: SampleCell) -> Figure:
    """The sheet: image with the mask's outline, then every method's map over it."""
    names = shown(run, samples)
    cell, left, top = 1.05, 0.1, 1.25
    columns = ["Image", *(short(run.explainers[name].label) for name in names)]
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


def map_figures(run: RunResults) -> Mapping[str, Figure | None]:
    """The figures of maps by file name (without suffix)."""
    kinds: tuple[MapKind, ...] = ("example", "global")
    return {f"maps-{kind}": map_figure(run, kind, map_rows(run, kind)) for kind in kinds}


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """A picture as a ``data:`` address, of the kind (``"png"``, ``"webp"``, ``"jpeg"``) and options of Pillow."""
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def tile_uri(colours: Levels) -> str:
    """``[H, W, 3]`` as a ``data:`` address: PNG, exact, up to 16 pixels a side; WebP, a third of it, above."""
    if max(colours.shape[:2]) <= 16:
        return data_uri(Image.fromarray(colours), "png", optimize=True)
    return data_uri(Image.fromarray(colours), "webp", quality=75)


def shrink(array: Floats, side: int = TILE) -> Floats:
    """``[H, W]`` reduced by whole-number block means until no side is above ``side``; edges are padded.

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
