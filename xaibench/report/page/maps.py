"""Maps on the page: the strip at its top, and tables of one sample, of the means and of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from xaibench.core.slices import name_slices
from xaibench.report.figures.samples import (
    CellKey,
    Floats,
    Levels,
    MapKind,
    color_tile,
    data_uri,
    map_array,
    map_rows,
    overlay,
    palette,
    sheet_explainers,
    sheets,
    shrink,
    tile_kind,
    tile_uri,
)
from xaibench.report.page.sample_browser import levels
from xaibench.report.results import RunResults, place
from xaibench.runfolder.sample_file import SampleCell

#: Side in pixels of a photograph on the page.
PHOTOGRAPH = 96
#: Largest number of tiles of photographs on the page; further images are only in the figure.
MOST_TILES = 500


@dataclass(frozen=True)
class Tile:
    """Image of a table of maps: its address and its text alternative."""

    uri: str
    alt: str


@dataclass(frozen=True)
class MapRow:
    """Row of a model in the table of maps; ``tiles`` follow the explainers, None without a map."""

    model: str
    tiles: list[Tile | None]


@dataclass(frozen=True)
class MapGroup:
    """Rows of one subset and variant, which share image and mask."""

    subset: str
    variant: str
    image: Tile | None
    mask: Tile | None
    rows: list[MapRow]


def map_table(run: RunResults, kind: MapKind) -> list[MapGroup]:
    """Return the maps of a kind as a table, grouped by subset and variant."""
    groups: dict[tuple[str, str], MapGroup] = {}
    for row in map_rows(run, kind):
        samples, head = run.pictures[row], f"{place(row[0])} {place(row[1])}".strip()
        if row[:2] not in groups:
            image, mask = (map_array(samples, kind, name) for name in ("image", "mask"))
            tiles = _make_tile(image, "image", f"Sample of {head}"), _make_tile(mask, "mask", f"Ground truth of {head}")
            groups[row[:2]] = MapGroup(place(row[0]), place(row[1]), *tiles, [])
        groups[row[:2]].rows.append(MapRow(run.models[row[2]].label, _map_tiles(run, row, kind)))
    return list(groups.values())


def _map_tiles(run: RunResults, row: CellKey, kind: MapKind) -> list[Tile | None]:
    samples = run.pictures[row]
    truth = map_array(samples, kind, "mask")
    tiles = []
    for name, part in run.explainers.items():
        array = map_array(samples, kind, name)
        tiles.append(_make_tile(array, name, f"{part.label}, {run.words_of(row)}{inside_share(array, truth, samples)}"))
    return tiles


def _make_tile(array: Floats | None, name: str, alt: str) -> Tile | None:
    return None if array is None else Tile(tile_uri(color_tile(shrink(array), tile_kind(name))), alt)


def inside_share(array: Floats | None, mask: Floats | None, samples: SampleCell) -> str:
    """Describe the share of the map's magnitude inside the ground truth; empty if undefined."""
    if array is None or mask is None or array.shape != mask.shape:
        return ""
    magnitude = np.abs(array.astype(np.float64))
    total = float(magnitude.sum())
    if not np.isfinite(total) or total == 0:
        return ": zero everywhere" if total == 0 else ""
    where = "" if samples.voxels is None else ", in three slices of the volume"
    return f": {magnitude[mask > 0].sum() / total:.0%} of its magnitude inside the ground truth{where}"


@dataclass(frozen=True)
class SheetTable:
    """Table of photographs in rows and explainers in columns."""

    dataset: str
    model: str
    explainers: list[str]
    rows: list[tuple[str, Tile, list[Tile]]]
    left_out: int


def sheet_tables(run: RunResults) -> list[SheetTable]:
    """Return the sheets as tables, limited to :data:`MOST_TILES` tiles with at least one image each."""
    found = sheets(run)
    wanted = sum(len(samples.sheet) * (1 + len(sheet_explainers(run, samples))) for samples in found.values())
    share = min(1.0, MOST_TILES / wanted) if wanted else 1.0
    tables = []
    for cell, samples in found.items():
        kept = samples.sheet[: max(int(share * len(samples.sheet)), 1)]
        rows = [_sheet_row(run, samples, number) for number in kept]
        label, left_out = run.models[cell[2]].label, len(samples.sheet) - len(kept)
        tables.append(SheetTable(place(cell[0]), label, list(sheet_explainers(run, samples)), rows, left_out))
    return tables


def _sheet_row(run: RunResults, samples: SampleCell, number: int) -> tuple[str, Tile, list[Tile]]:
    label, truth = samples.labels[number], samples.masks[number].astype(np.float64)
    tiles = []
    for name, explainer in sheet_explainers(run, samples).items():
        share = inside_share(samples.maps[number, explainer], truth, samples)
        alt = f"{run.explainers[name].label}, {label}{share}"
        tiles.append(Tile(_encode_jpeg(overlay(samples, number, explainer, PHOTOGRAPH)), alt))
    image = _encode_jpeg(overlay(samples, number, None, PHOTOGRAPH))
    return label, Tile(image, f"{label}, its ground truth outlined"), tiles


def _encode_jpeg(colors: Levels) -> str:
    return data_uri(Image.fromarray(colors), "jpeg", quality=75, optimize=True)


#: Number of best methods in the strip.
_BEST = 3


@dataclass(frozen=True)
class MapStrip:
    """One sample with the maps of a few methods.

    Attributes:
        cell: Label of the cell.
        sample: Label of the sample.
        tiles: The image, the ground truth and the maps, each with the text below it.
        controls: The texts that name controls.
    """

    cell: str
    sample: str
    tiles: list[tuple[str, Tile]]
    controls: list[str]


def map_strip(run: RunResults, order: Sequence[str]) -> MapStrip | None:
    """Return one sample with the maps of the three best methods, the last one and the best control.

    Args:
        run: The run.
        order: Methods and controls, best first.

    Returns:
        The strip; None if no sample has a map.
    """
    samples = next((samples for samples in run.pictures.values() if len(samples.images) and samples.explainers), None)
    if samples is None:
        return None
    known = [name for name in order if name in samples.explainers]
    methods = [name for name in known if not run.explainers[name].control]
    controls = [name for name in known if run.explainers[name].control]
    chosen = dict.fromkeys([*methods[:_BEST], *methods[-1:], *controls[:1]])
    number = samples.example or 0
    tiles = [
        ("Image", Tile(_encode_image(samples, samples.images[number]), "The image")),
        ("Ground truth", Tile(_encode_mask(samples, number), "The ground truth")),
    ]
    truth = samples.masks[number].astype(np.float64)
    for name in chosen:
        place = samples.explainers.index(name)
        label, share = run.explainers[name].label, inside_share(samples.maps[number, place], truth, samples)
        tiles.append((label, Tile(_encode_map(samples, number, place), f"Map of {label}{share}")))
    shown = [run.explainers[name].label for name in controls[:1]]
    slices = [] if samples.voxels is None else name_slices(samples.voxels.slices[number])
    return MapStrip(run.words_of(samples.cell), ", ".join([samples.labels[number], *slices]), tiles, shown)


def _encode_mask(samples: SampleCell, number: int) -> str:
    return data_uri(Image.fromarray(255 * samples.masks[number]), "png", optimize=True)


def _encode_map(samples: SampleCell, number: int, place: int) -> str:
    if samples.photographs:
        return data_uri(Image.fromarray(overlay(samples, number, place, PHOTOGRAPH)), "jpeg", quality=75, optimize=True)
    return data_uri(Image.fromarray(palette()[levels(samples.maps[number, place])]), "png", optimize=True)


def _encode_image(samples: SampleCell, image: Any) -> str:
    picture = Image.fromarray(image)
    return data_uri(picture, "jpeg", quality=80) if samples.photographs else data_uri(picture, "png", optimize=True)
