"""Sheets of maps: a row for each sample, a column for each explainer (Zhang et al. 2023, Fig. 6).

The figures and the tables of the page show the same sheets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from xaibench.benchmarks.facets import is_moving
from xaibench.core.pictures import TOP, Floats, Levels, color_picture, fit, palette
from xaibench.plots.figures import THEME, house_style, shorten_label
from xaibench.runfolder.sample_file import SampleCell
from xaibench.scores.results import RunResults, place

#: Columns of a sheet that are not maps, and their headings.
COLUMNS = {"image": "Image", "mask": "Ground truth"}
_OUTLINE = np.array([0, 229, 255], dtype=np.uint8)
#: Dots per inch of a figure; its largest tiles in dots, of generated images and of photographs; the gap around each.
_DPI, _SIDE, _PHOTOGRAPH_SIDE, _GAP = 150, 69, 150, 3
#: Sample, its position in the cell (None: the mean over the samples), and the label of the row.
Row: TypeAlias = tuple[SampleCell, int | None, str]


@dataclass(frozen=True)
class MapSheet:
    """A sheet of maps.

    Attributes:
        name: Name of its figure.
        title: Title.
        columns: Keys of :data:`COLUMNS` and names of explainers.
        rows: The samples.
        photographs: Whether the maps are drawn over images with an outlined mask.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    photographs: bool = False


def map_sheets(run: RunResults) -> list[MapSheet]:
    """Return the sheets of a run: a sample per cell, the mean maps per cell, and photographs per cell.

    Mean maps leave out subsets with a moving pattern.
    """
    named = [(samples, run.words_of(cell)) for cell, samples in run.pictures.items()]
    examples = tuple((samples, samples.example, words) for samples, words in named if samples.example is not None)
    kept = [(samples, words) for samples, words in named if len(samples.means) and not is_moving(samples.subset)]
    means: tuple[Row, ...] = tuple((samples, None, words) for samples, words in kept)
    sheets = [
        MapSheet("maps-example", "One sample of each cell", ("image", "mask", *run.explainers), examples),
        MapSheet("maps-global", "Mean map over samples", ("mask", *run.explainers), means),
    ]
    for samples in run.pictures.values():
        title = f"Maps over images of {place(samples.subset)}, {run.models[samples.model].label}"
        names = [name for name in run.explainers if name in samples.explainers]
        rows = tuple((samples, number, samples.labels[number]) for number in samples.sheet)
        sheets.append(MapSheet(f"sheet-{samples.subset}-{samples.model}", title, ("image", *names), rows, True))
    return [sheet for sheet in sheets if sheet.rows]


def map_array(samples: SampleCell, number: int | None, name: str) -> Floats | None:
    """Return an array ``[H, W]`` of a sample or of the means.

    Args:
        samples: Samples of a cell.
        number: Position of the sample; None for the mean.
        name: ``"image"`` (0 is zero, magnitude at most 1), ``"mask"`` (0 or 1), or an explainer.

    Returns:
        The array, or None if there is none.
    """
    array = None
    if name == "mask":  # with a fixed pattern, all samples have the same mask
        array = samples.masks[(samples.example or 0) if number is None else number]
    elif name == "image":
        array = None if number is None else samples.images[number, :, :, 0] / 127.5 - 1
    elif name in samples.explainers:
        maps = samples.means if number is None else samples.maps[number]
        array = maps[samples.explainers.index(name)] if len(maps) else None
    return None if array is None else np.asarray(array, dtype=np.float64)


def draw_tile(samples: SampleCell, number: int | None, name: str, side: int) -> Levels | None:
    """Render a tile of a sheet.

    Args:
        samples: Samples of a cell.
        number: Position of the sample; None for the mean.
        name: As for :func:`map_array`.
        side: Longest side in pixels; photographs are enlarged to it.

    Returns:
        ``[h, w, 3]``, or None if there is none.
    """
    if samples.photographs and number is not None and name != "mask":
        explainer = samples.explainers.index(name) if name in samples.explainers else None
        return None if explainer is None and name != "image" else overlay(samples, number, explainer, side)
    array = map_array(samples, number, name)
    if array is None:
        return None
    return color_picture(fit(array, side), "image" if name == "image" else "mask" if name == "mask" else "map")


def overlay(samples: SampleCell, number: int, explainer: int | None, side: int) -> Levels:
    """Render a photograph with the outline of its mask.

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
        padded = np.pad(inside, 1, mode="edge")  # the border of the image is not outside
        core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        tile = np.where((inside & ~core)[..., None], _OUTLINE, tile)
    return np.asarray(tile, dtype=np.uint8)


def sheet_figure(run: RunResults, sheet: MapSheet) -> Figure:
    """Draw a sheet as a mosaic, in which one pixel is one dot of the PNG file; tiles without a map are empty."""
    side = _PHOTOGRAPH_SIDE if sheet.photographs else _SIDE
    drawn = [[draw_tile(samples, at, name, side) for name in sheet.columns] for samples, at, _ in sheet.rows]
    tiles = [[None if tile is None else fit(tile, side, enlarge=True) for tile in row] for row in drawn]
    tallest = max(len(tile) for row in tiles for tile in row if tile is not None) + 2 * _GAP
    pitch = side + 2 * _GAP
    whole = np.zeros((tallest * len(tiles), pitch * len(sheet.columns), 4), np.uint8)
    for y, row in enumerate(tiles):
        for x, tile in enumerate(row):
            if tile is not None:
                place_of = whole[y * tallest + _GAP :, x * pitch + _GAP :][: tile.shape[0], : tile.shape[1]]
                place_of[..., :3], place_of[..., 3] = tile, 255
    left, top, below = 1.9, 1.4, 0.1
    high, wide = (length / _DPI for length in whole.shape[:2])
    width, height = left + wide + 0.9, top + high + below
    with house_style():
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((left / width, below / height, wide / width, high / height))
        # All tiles are one image, since hundreds of images would take a second, and hundreds of Axes a minute.
        axes.imshow(whole, extent=(0, len(sheet.columns), len(tiles), 0), interpolation="none", aspect="auto")
        labels = [shorten_label(COLUMNS.get(name) or run.explainers[name].label) for name in sheet.columns]
        axes.set_xticks(np.arange(len(labels)) + 0.5, labels, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(tiles)) + 0.5, [shorten_label(label) for *_, label in sheet.rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=THEME["ink"], pad=4)
        axes.spines[:].set_visible(False)
    return figure
