"""Maps on the page: the strip at its top, and the sheets of maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xaibench.core.pictures import picture_uri
from xaibench.core.slices import name_slices
from xaibench.plots.map_sheets import COLUMNS, draw_tile, map_array, map_sheets
from xaibench.runfolder.sample_file import SampleCell
from xaibench.scores.results import RunResults

#: Longest side in pixels of a tile on the page, and of a photograph.
TILE, PHOTOGRAPH = 32, 96
#: Largest number of tiles of photographs on the page; further images are only in the figure.
MOST_TILES = 500


@dataclass(frozen=True)
class Tile:
    """Image of a table of maps: its address and its text alternative."""

    uri: str
    alt: str


def make_tile(
    run: RunResults, samples: SampleCell, number: int | None, name: str, label: str, side: int
) -> Tile | None:
    """Return a tile of a sheet with its text alternative, which states how much of a map is inside the ground truth.

    Args:
        run: The run.
        samples: Samples of a cell.
        number: Position of the sample; None for the mean.
        name: As for :func:`~xaibench.plots.map_sheets.draw_tile`.
        label: Label of the sample.
        side: Longest side in pixels.
    """
    colors = draw_tile(samples, number, name, side)
    if colors is None:
        return None
    alt = f"{COLUMNS.get(name) or run.explainers[name].label}, {label}"
    if name not in COLUMNS:
        share = inside_share(map_array(samples, number, name), map_array(samples, number, "mask"), samples)
        alt += share
    return Tile(picture_uri(colors), alt)


def inside_share(array: Any, mask: Any, samples: SampleCell) -> str:
    """Describe the share of the map's magnitude inside the ground truth; empty if undefined."""
    if array is None or mask is None or array.shape != mask.shape:
        return ""
    magnitude = np.abs(array)
    total = float(magnitude.sum())
    if not np.isfinite(total) or total == 0:
        return ": zero everywhere" if total == 0 else ""
    where = "" if samples.voxels is None else ", in three slices of the volume"
    return f": {magnitude[mask > 0].sum() / total:.0%} of its magnitude inside the ground truth{where}"


def sheet_tables(run: RunResults) -> list[dict[str, Any]]:
    """Return the sheets of a run; of photographs at most :data:`MOST_TILES` tiles, with at least one image each.

    Returns:
        ``sheet``, ``rows`` (label and tiles; None without a map), and how many images are ``left_out``.
    """
    sheets = map_sheets(run)
    wanted = sum(len(sheet.rows) * len(sheet.columns) for sheet in sheets if sheet.photographs)
    share = min(1.0, MOST_TILES / wanted) if wanted else 1.0
    tables = []
    for sheet in sheets:
        side = PHOTOGRAPH if sheet.photographs else TILE
        kept = sheet.rows[: max(int(share * len(sheet.rows)), 1)] if sheet.photographs else sheet.rows
        rows = [(row[2], [make_tile(run, *row[:2], name, row[2], side) for name in sheet.columns]) for row in kept]
        tables.append({"sheet": sheet, "rows": rows, "left_out": len(sheet.rows) - len(kept)})
    return tables


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
    chosen = dict.fromkeys([*COLUMNS, *methods[:_BEST], *methods[-1:], *controls[:1]])
    number = samples.example or 0
    slices = [] if samples.voxels is None else name_slices(samples.voxels.slices[number])
    sample = ", ".join([samples.labels[number], *slices])
    return {
        "cell": run.words_of(samples.cell),
        "sample": sample,
        "tiles": [
            (COLUMNS.get(name) or run.explainers[name].label, make_tile(run, samples, number, name, sample, PHOTOGRAPH))
            for name in chosen
        ],
        "controls": [run.explainers[name].label for name in controls[:1]],
    }
