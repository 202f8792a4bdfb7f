"""Maps to look at: one sample, and the mean over samples, as a figure and as a table of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xaibench.report.draw.inline_images import shrink, tile_uri
from xaibench.report.draw.score_figures import THEME, house_style, short
from xaibench.report.read.run_reading import Run, place


def map_kinds(run: Run) -> dict[str, list[tuple[str, str, str]]]:
    """The rows (scenario, background, model) that have maps, for ``"example"`` and ``"global"``.

    Global maps leave out scenarios whose pattern moves: a mean over places shows nothing.
    """
    kinds: dict[str, list[tuple[str, str, str]]] = {"example": [], "global": []}
    found = {tuple(key.split("/")) for key in run.examples}
    for kind, rows in kinds.items():
        for scenario in run.scenarios:
            if kind == "global" and scenario == "rigid":
                continue
            for background in run.backgrounds:
                for model in run.models:
                    if any((scenario, background, model, name, kind) in found for name in run.explainers):
                        rows.append((scenario, background, model))
    return kinds


def colour_tile(array: NDArray[np.float64], kind: str) -> NDArray[np.uint8]:
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


def map_figure(run: Run, kind: str, rows: Sequence[tuple[str, str, str]]) -> Figure | None:
    """Maps as a mosaic: a row for each scenario, background and model; image, mask and explainers in columns.

    Args:
        run: The run.
        kind: ``"example"`` (one sample) or ``"global"`` (mean over the samples; no image column).
        rows: From :func:`map_kinds`.

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
                array = run.examples.get(tile_key(row, name, kind))
                if array is not None and array.ndim == 2:
                    colours = colour_tile(array, name if name in ("image", "mask") else "map")
                    extent = (x + 0.04, x + 0.96, y + 0.96, y + 0.04)
                    axes.imshow(colours, extent=extent, interpolation="none", aspect="auto")
        axes.set_xlim(0, len(columns))
        axes.set_ylim(len(rows), 0)
        labels = [short(label) for _, label in columns]
        axes.set_xticks(np.arange(len(columns)) + 0.5, labels, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(np.arange(len(rows)) + 0.5, [row_label(run, row) for row in rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=THEME["ink"], pad=4)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def row_label(run: Run, row: tuple[str, str, str]) -> str:
    """A cell in words, ``LIN · WHITE · MLP``."""
    return " · ".join(word for word in (place(row[0]), place(row[1]), run.models[row[2]].label) if word)


def tile_key(row: tuple[str, str, str], name: str, kind: str) -> str:
    """The key in ``examples.safetensors`` of the image, the mask or an explainer's map."""
    return f"{row[0]}/{row[1]}/{name}" if name in ("image", "mask") else "/".join((*row, name, kind))


@dataclass(frozen=True)
class Tile:
    """One image of the table of maps: its address and what it shows, in words."""

    uri: str
    alt: str


@dataclass(frozen=True)
class MapRow:
    """A model's row in the table of maps; ``tiles`` follow the explainers, None where there is no map."""

    model: str
    tiles: list[Tile | None]


@dataclass(frozen=True)
class MapGroup:
    """The rows of one scenario and background, which share image and mask."""

    scenario: str
    background: str
    image: Tile | None
    mask: Tile | None
    rows: list[MapRow]


def map_table(run: Run, kind: str, rows: Sequence[tuple[str, str, str]]) -> list[MapGroup]:
    """The maps of ``kind`` (``"example"`` or ``"global"``) as a table, grouped by scenario and background."""
    groups: dict[tuple[str, str], MapGroup] = {}
    for row in rows:
        head = f"{place(row[0])} {place(row[1])}".strip()
        if row[:2] not in groups:
            image = _tile(run, tile_key(row, "image", kind), "image", f"Sample of {head}")
            mask = _tile(run, tile_key(row, "mask", kind), "mask", f"Ground truth of {head}")
            groups[row[:2]] = MapGroup(place(row[0]), place(row[1]), image, mask, [])
        truth = run.examples.get(tile_key(row, "mask", kind))
        tiles = []
        for name, part in run.explainers.items():
            key = tile_key(row, name, kind)
            alt = f"{part.label}, {row_label(run, row)}{inside_share(run.examples.get(key), truth)}"
            tiles.append(_tile(run, key, "map", alt))
        groups[row[:2]].rows.append(MapRow(run.models[row[2]].label, tiles))
    return list(groups.values())


def _tile(run: Run, key: str, kind: str, alt: str) -> Tile | None:
    array = run.examples.get(key)
    if array is None or array.ndim != 2:
        return None
    return Tile(tile_uri(colour_tile(shrink(np.abs(array) if kind == "map" else array), kind)), alt)


def inside_share(array: NDArray[np.float64] | None, mask: NDArray[np.float64] | None) -> str:
    """In words, how much of the map lies inside the ground truth; empty where that is not defined."""
    if array is None or mask is None or array.shape != mask.shape:
        return ""
    total = float(np.abs(array).sum())
    if not np.isfinite(total) or total == 0:
        return ": zero everywhere" if total == 0 else ""
    return f": {np.abs(array)[mask > 0].sum() / total:.0%} of its magnitude inside the ground truth"
