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
from xaibench.runfolder.sample_file import SampleCell
from xaibench.scores.results import RunResults, place

#: Side in pixels of a photograph on the page.
PHOTOGRAPH = 96
#: Largest number of tiles of photographs on the page; further images are only in the figure.
MOST_TILES = 500


@dataclass(frozen=True)
class Tile:
    """Image of a table of maps: its address and its text alternative."""

    uri: str
    alt: str


def map_table(run: RunResults, kind: MapKind) -> list[dict[str, Any]]:
    """Return the maps of a kind, grouped by subset and variant.

    Returns:
        ``subset``, ``variant`` and their ``image`` and ``mask``; ``rows``: ``model`` and its ``tiles``, which follow
        the explainers, None without a map.
    """
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in map_rows(run, kind):
        samples, head = run.pictures[row], f"{place(row[0])} {place(row[1])}".strip()
        if row[:2] not in groups:
            image, mask = (map_array(samples, kind, name) for name in ("image", "mask"))
            groups[row[:2]] = {"subset": place(row[0]), "variant": place(row[1]), "rows": []}
            groups[row[:2]]["image"] = _make_tile(image, "image", f"Sample of {head}")
            groups[row[:2]]["mask"] = _make_tile(mask, "mask", f"Ground truth of {head}")
        tiles = _map_tiles(run, row, kind)
        groups[row[:2]]["rows"].append({"model": run.models[row[2]].label, "tiles": tiles})
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


def sheet_tables(run: RunResults) -> list[dict[str, Any]]:
    """Return the sheets of photographs, limited to :data:`MOST_TILES` tiles with at least one image each.

    Returns:
        ``dataset``, ``model``, ``explainers``, ``rows`` (label, image and tiles), and how many images are ``left_out``.
    """
    cells = sheets(run)
    wanted = sum(len(samples.sheet) * (1 + len(sheet_explainers(run, samples))) for samples in cells.values())
    share = min(1.0, MOST_TILES / wanted) if wanted else 1.0
    tables = []
    for cell, samples in cells.items():
        kept = samples.sheet[: max(int(share * len(samples.sheet)), 1)]
        rows = [_sheet_row(run, samples, number) for number in kept]
        names = {"dataset": place(cell[0]), "model": run.models[cell[2]].label}
        explainers, left_out = list(sheet_explainers(run, samples)), len(samples.sheet) - len(kept)
        tables.append(names | {"explainers": explainers, "rows": rows, "left_out": left_out})
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


def map_strip(run: RunResults, order: Sequence[str]) -> dict[str, Any] | None:
    """Return one sample with the maps of the three best methods, the last one and the best control.

    Args:
        run: The run.
        order: Methods and controls, best first.

    Returns:
        Labels of the ``cell`` and the ``sample``; ``tiles``: the image, the ground truth and the maps, each with the
        text below it; ``controls``: the texts that name controls. None if no sample has a map.
    """
    samples = next((samples for samples in run.pictures.values() if len(samples.images) and samples.explainers), None)
    if samples is None:
        return None
    known = [name for name in order if name in samples.explainers]
    methods = [name for name in known if not run.explainers[name].control]
    controls = [name for name in known if run.explainers[name].control]
    chosen = dict.fromkeys([*methods[:_BEST], *methods[-1:], *controls[:1]])
    number = samples.example or 0
    form: dict[str, Any] = {"kind": "png", "optimize": True}
    image = data_uri(
        Image.fromarray(samples.images[number]), **{"kind": "jpeg", "quality": 80} if samples.photographs else form
    )
    mask = data_uri(Image.fromarray(255 * samples.masks[number]), **form)
    tiles = [("Image", Tile(image, "The image")), ("Ground truth", Tile(mask, "The ground truth"))]
    truth = samples.masks[number].astype(np.float64)
    for name in chosen:
        index = samples.explainers.index(name)
        label, share = run.explainers[name].label, inside_share(samples.maps[number, index], truth, samples)
        if samples.photographs:
            uri = _encode_jpeg(overlay(samples, number, index, PHOTOGRAPH))
        else:
            uri = data_uri(Image.fromarray(palette()[levels(samples.maps[number, index])]), **form)
        tiles.append((label, Tile(uri, f"Map of {label}{share}")))
    shown = [run.explainers[name].label for name in controls[:1]]
    slices = [] if samples.voxels is None else name_slices(samples.voxels.slices[number])
    sample = ", ".join([samples.labels[number], *slices])
    return {"cell": run.words_of(samples.cell), "sample": sample, "tiles": tiles, "controls": shown}
