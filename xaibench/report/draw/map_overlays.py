"""Maps over their images: a row an image, a column a method (Zhang et al. 2023, Figure 6), as figure and as table."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from xaibench.report.draw.map_figures import Tile, inside_share
from xaibench.report.draw.score_figures import THEME, house_style, short
from xaibench.report.read.run_reading import Run

#: Side in pixels of a tile on the page and in the figure.
SIDE, FIGURE_SIDE = 96, 150
#: Tiles on the page at most; images beyond are in the figure alone.
MOST_TILES = 500
#: The quantile of a map's magnitudes that gets the strongest colour: one extreme pixel would leave all others dark.
TOP = 0.995
_OUTLINE = np.array([0, 229, 255], dtype=np.uint8)

Colours = NDArray[np.uint8]


@dataclass(frozen=True)
class SheetRow:
    """One image with its maps.

    Attributes:
        label: What the image shows.
        image: ``[H, W, 3]``.
        mask: ``[H, W]`` bool, or None.
        maps: Explainer to map ``[H, W]``.
    """

    label: str
    image: Colours
    mask: NDArray[np.bool_] | None
    maps: dict[str, NDArray[np.floating[Any]]]


def sheet_rows(run: Run) -> dict[tuple[str, str], list[SheetRow]]:
    """The images of ``sheet.safetensors`` by data set and model, in the order of their numbers."""
    arrays, labels = run.sheet
    samples = sorted({key.removesuffix("/image") for key in arrays if key.endswith("/image")}, key=_numbered)
    found: dict[tuple[str, str], list[SheetRow]] = {}
    for sample in samples:
        image, mask = arrays[f"{sample}/image"], arrays.get(f"{sample}/mask")
        if image.ndim != 3 or image.shape[2] != 3:
            continue
        maps = {name: arrays.get(f"{sample}/map/{name}") for name in run.explainers}
        fitting = {name: array for name, array in maps.items() if array is not None and array.shape == image.shape[:2]}
        outline = mask > 0 if mask is not None and mask.shape == image.shape[:2] else None
        row = SheetRow(labels.get(sample, sample), image.astype(np.uint8), outline, fitting)
        found.setdefault(_place(run, sample), []).append(row)
    return found


def _numbered(sample: str) -> tuple[str, int, str]:
    head, _, number = sample.rpartition("/")
    return head, int(number) if number.isdigit() else 0, number


def _place(run: Run, sample: str) -> tuple[str, str]:
    """Data set and model, either of which may have a slash in its name."""
    head = sample.rpartition("/")[0]
    model = next((name for name in run.models if head.endswith(f"/{name}")), head.rpartition("/")[2])
    return head.removesuffix(f"/{model}"), model


def overlay(row: SheetRow, explainer: str | None, side: int) -> Colours:
    """A tile of the sheet.

    Args:
        row: The image and its maps.
        explainer: Whose map lies half-transparent over the image (its magnitude, from its smallest to its quantile
            :data:`TOP`; a constant map has the colour of nothing everywhere); None = the image alone.
        side: The longer side of the tile in pixels; smaller images are enlarged.

    Returns:
        ``[h, w, 3]``, with the mask's outline.
    """
    height, width = row.image.shape[:2]
    scale = side / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    smooth = Image.Resampling.BOX if scale >= 1 else Image.Resampling.LANCZOS
    tile = np.asarray(Image.fromarray(row.image).resize(size, smooth))
    if explainer is not None:
        magnitude = np.nan_to_num(np.abs(row.maps[explainer]).astype(np.float32), posinf=0.0)
        small = np.asarray(Image.fromarray(magnitude).resize(size, Image.Resampling.BOX))
        low, top = float(small.min()), float(np.quantile(small, TOP))
        span = (top if top > low else float(small.max())) - low
        shares = np.clip((small - low) / (span or 1.0), 0, 1)
        heat = matplotlib.colormaps["inferno"](shares, bytes=True)[..., :3]
        tile = ((tile.astype(np.uint16) + heat) // 2).astype(np.uint8)
    if row.mask is not None and row.mask.any():
        mask = np.asarray(Image.fromarray(row.mask.astype(np.uint8)).resize(size, Image.Resampling.NEAREST)) > 0
        tile = np.where(_rim(mask)[..., None], _OUTLINE, tile)
    return np.asarray(tile, dtype=np.uint8)


def _rim(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of the mask with a neighbour outside of it; the edge of the image is no outside."""
    padded = np.pad(mask, 1, mode="edge")
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.asarray(mask & ~core)


def overlay_figure(run: Run, rows: list[SheetRow]) -> Figure:
    """The sheet: image with the mask's outline, then every method's map over it."""
    names = _shown(run, rows)
    cell, left, top = 1.05, 0.1, 1.25
    columns = ["Image", *(short(run.explainers[name].label) for name in names)]
    height_of = max(row.image.shape[0] / max(row.image.shape[:2]) for row in rows)
    line = cell * height_of + 0.2
    width, height = left + cell * len(columns) + 0.7, top + line * len(rows)
    with house_style():
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for x, label in enumerate(columns):
            axes.text(
                left + cell * (x + 0.4), top - 0.06, label, rotation=40, rotation_mode="anchor", color=THEME["ink"]
            )
        for y, row in enumerate(rows):
            for x, name in enumerate([None, *names]):
                if name is None or name in row.maps:
                    tile = overlay(row, name, FIGURE_SIDE)
                    h, w = (0.96 * cell * length / FIGURE_SIDE for length in tile.shape[:2])
                    corner = (left + x * cell, top + y * line)
                    extent = (corner[0], corner[0] + w, corner[1] + h, corner[1])
                    axes.imshow(tile, extent=extent, interpolation="none", aspect="auto")
            axes.text(left, top + (y + 1) * line - 0.03, row.label, va="bottom", color=THEME["soft"])
        axes.set(xlim=(0, width), ylim=(height, 0))
    return figure


def _shown(run: Run, rows: Iterable[SheetRow]) -> list[str]:
    return [name for name in run.explainers if any(name in row.maps for row in rows)]


@dataclass(frozen=True)
class Sheet:
    """A table of the page: explainers in columns, and for each image its tile and theirs (None = no map)."""

    dataset: str
    model: str
    explainers: list[str]
    rows: list[tuple[str, Tile, list[Tile | None]]]
    left_out: int


def overlay_tables(run: Run, sheets: dict[tuple[str, str], list[SheetRow]]) -> list[Sheet]:
    """The sheets as tables, cut to :data:`MOST_TILES` tiles in all, at least one image of each."""
    wanted = sum(len(rows) * (1 + len(_shown(run, rows))) for rows in sheets.values())
    share = min(1.0, MOST_TILES / wanted) if wanted else 1.0
    tables = []
    for (dataset, model), rows in sheets.items():
        names, label = _shown(run, rows), run.models[model].label if model in run.models else model
        kept = rows[: max(int(share * len(rows)), 1)]
        lines = []
        for row in kept:
            tiles = [_tile(run, row, name) if name in row.maps else None for name in names]
            image = Tile(jpeg_uri(overlay(row, None, SIDE)), f"{row.label}, its ground truth outlined")
            lines.append((row.label, image, tiles))
        tables.append(Sheet(dataset, label, names, lines, len(rows) - len(kept)))
    return tables


def _tile(run: Run, row: SheetRow, name: str) -> Tile:
    truth = None if row.mask is None else row.mask.astype(np.float64)
    share = inside_share(row.maps[name].astype(np.float64), truth)
    return Tile(jpeg_uri(overlay(row, name, SIDE)), f"{run.explainers[name].label}, {row.label}{share}")


def jpeg_uri(colours: Colours) -> str:
    """``[H, W, 3]`` as a ``data:`` address."""
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, format="jpeg", quality=75, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
