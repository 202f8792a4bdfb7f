"""Samples on the page: the strip at its top, the sheets of maps, and the data of the sample browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.core.pictures import data_uri, fit, levels, name_slices, picture_uri, scale_levels
from xaibench.plots.map_sheets import COLUMNS, draw_tile, map_array, map_sheets
from xaibench.report.page.content import round_for_page
from xaibench.runfolder.sample_file import SampleCell, Voxels
from xaibench.runfolder.schema import CELL
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


#: If fewer samples per cell than this fit at full size, maps are reduced to :data:`SMALL` pixels per side.
ENOUGH, SMALL = 12, 32
#: Longest side in pixels of an image on the page.
IMAGE_SIDE = 112
#: Quality of pictures, for WebP.
_QUALITY = 60

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Browser:
    """Data of the sample browser.

    Attributes:
        cells: JSON-ready value per cell; see :func:`browser`.
        shown: Largest number of samples per cell.
        reduced: Side in pixels to which maps were reduced for the page, or 0.
    """

    cells: list[dict[str, Any]]
    shown: int
    reduced: int


def browser(run: RunResults, room: int) -> Browser:
    """Encode as many samples of ``samples.safetensors`` as fit on the page.

    Args:
        run: The run.
        room: Bytes available on the page.

    Returns:
        Per cell:

        - ``subset``, ``variant``, ``model``; together its ``name``, and its ``label``; ``explainers``;
        - ``samples`` (their numbers), ``labels``, ``classes``, ``predicted``, ``probabilities``; ``images``, ``masks``,
          ``maps`` (all maps of a sample side by side in one image) as ``data:`` addresses; ``overlay``, whether maps
          are drawn over the image;
        - for volumes, whose slices are stacked from top to bottom in these images: ``volume`` with its ``shape``, its
          ``sides`` on the page (at most :data:`~xaibench.runfolder.sample_file.MOST_VOXELS` voxels), and the ``slices``
          of each sample to begin with;
        - ``of``: number of correctly classified samples of the cell;
        - ``scores`` and ``ranks``, each ``[metric][explainer][sample]``: rank 1 is the worst of the cell; ties share
          the lowest rank; ``valid`` and ``worst``, each ``[metric][explainer]``: number of defined scores, and number
          of the worst samples that are all included here.
    """
    tables = {cell: _network_scores(run, cell) for cell in run.pictures.values()}
    cells = [
        cell for cell, table in tables.items() if cell.browsed and np.isin(cell.samples[: cell.browsed], table[0]).all()
    ]
    if not cells:  # also if all samples belong to another run
        return Browser([], 0, 0)
    longest = max(cell.browsed for cell in cells)
    for reduced in (0, SMALL):
        count, pictures = _encode_samples(cells, reduced, room, longest)
        if count >= min(ENOUGH, longest):
            break
    small = max([max(cell.maps.shape[2:]) for cell in cells if cell.voxels is None], default=0) <= SMALL
    described = [
        _describe_cell(run, cell, kept, *tables[cell]) for cell, kept in zip(cells, pictures, strict=True) if kept[0]
    ]
    return Browser(described, count, 0 if small else reduced)


#: Images, masks and maps of a cell's samples as ``data:`` addresses.
EncodedImages = tuple[list[str], list[str], list[str]]


def _encode_samples(
    cells: Sequence[SampleCell], reduced: int, room: int, longest: int
) -> tuple[int, list[EncodedImages]]:
    """Encode images, masks and maps of as many samples per cell as fit, taking the cells in turns."""
    pictures: list[EncodedImages] = [([], [], []) for _ in cells]
    for number in range(longest):
        turn = [_encode_sample(cell, number, reduced) if number < cell.browsed else None for cell in cells]
        room -= sum(len(text) for one in turn if one for text in one) + 100 * len(cells)
        if room < 0:
            return number, pictures
        for kept, one in zip(pictures, turn, strict=True):
            for texts, text in zip(kept, one or (), strict=False):
                texts.append(text)
    return longest, pictures


def _encode_sample(cell: SampleCell, number: int, reduced: int) -> tuple[str, str, str]:
    if cell.voxels is not None:
        return _encode_volume(cell.voxels, number)
    maps = [levels(one) for one in cell.maps[number]]
    if reduced:
        maps = [fit(one, reduced) for one in maps]
    mask = fit(255 * cell.masks[number], IMAGE_SIDE) >= 128
    return _encode(fit(cell.images[number], IMAGE_SIDE), mask, np.concatenate(maps, axis=1))


def _encode_volume(voxels: Voxels, number: int) -> tuple[str, str, str]:
    maps = np.concatenate([scale_levels(one.astype(np.float64)) for one in voxels.maps[number]], axis=-1)
    arrays = voxels.images[number], voxels.masks[number] > 0, maps
    image, mask, stacked = (array.reshape(-1, array.shape[-1]) for array in arrays)
    return _encode(image, mask, stacked)


def _encode(image: NDArray[np.uint8], mask: NDArray[np.bool_], maps: NDArray[np.uint8]) -> tuple[str, str, str]:
    return picture_uri(image, _QUALITY), data_uri(mask, "png", optimize=True), picture_uri(maps, _QUALITY)


def _describe_cell(
    run: RunResults, cell: SampleCell, kept: EncodedImages, samples: NDArray[np.int64], values: Floats
) -> dict[str, Any]:
    count = len(kept[0])
    return {
        **dict(zip(CELL, cell.cell, strict=True)),
        **{"name": "/".join(cell.cell), "label": run.words_of(cell.cell)},
        "explainers": list(cell.explainers),
        "overlay": cell.photographs or cell.voxels is not None,
        "samples": list(cell.samples[:count]),
        "labels": list(cell.labels[:count]),
        **{name: list(getattr(cell, name)[:count]) for name in ("classes", "predicted", "probabilities")},
        **dict(zip(("images", "masks", "maps"), kept, strict=True)),
        **({} if cell.voxels is None else {"volume": _describe_volume(cell.voxels, count)}),
        **_describe_scores(run, samples, values, np.searchsorted(samples, cell.samples[:count])),
    }


def _describe_volume(voxels: Voxels, count: int) -> dict[str, Any]:
    """Return the shape of volumes, their sides on the page, and the slices of each sample, in voxels on the page."""
    sides = list(zip(voxels.sides, voxels.shape, strict=True))
    slices = [
        [int((place + 0.5) * side / whole) for place, (side, whole) in zip(one, sides, strict=True)]
        for one in voxels.slices[:count]
    ]
    return {"shape": list(voxels.shape), "sides": list(voxels.sides), "slices": slices}


def _network_scores(run: RunResults, cell: SampleCell) -> tuple[NDArray[np.int64], Floats]:
    """Return the samples of the network of a cell that count, and their scores ``[U, K, M]``."""
    names: dict[str, Any] = dict(zip(CELL, cell.cell, strict=True)) | {"dataset": cell.dataset}
    names |= {"data_seed": cell.data_seed, "seed": cell.seed}
    mine = np.logical_and.reduce([run.scores[key] == name for key, name in names.items()])
    rows = run.scores[mine & run.scores["scored"].to_numpy()]
    samples, index = np.unique(rows["sample"], return_inverse=True)
    values = np.full((len(samples), len(run.metrics), len(cell.explainers)), np.nan)
    m = pd.Index(cell.explainers).get_indexer(rows["explainer"].astype(str))
    known, k = m >= 0, rows["metric"].cat.codes.to_numpy()
    values[index[known], k[known], m[known]] = rows["value"].to_numpy()[known]
    return samples, values


def _describe_scores(
    run: RunResults, samples: NDArray[np.int64], values: Floats, shown: NDArray[np.intp]
) -> dict[str, Any]:
    from scipy.stats import rankdata  # imported on use, because it is slow to load

    signs = [1.0 if part.higher_is_better else -1.0 for part in run.metrics.values()]
    goodness = values * np.array(signs)[:, None]
    undefined = np.isnan(goodness)
    ranks = rankdata(np.where(undefined, np.inf, goodness), axis=0, method="min")
    bar = np.fmin.reduce(np.delete(goodness, shown, axis=0), axis=0, initial=np.inf)
    return {
        "of": len(samples),
        "scores": _nested_lists(values[shown]),
        "ranks": _nested_lists(np.where(undefined, np.nan, ranks)[shown]),
        "valid": (~undefined).sum(axis=0).tolist(),
        "worst": (goodness[shown] <= bar).sum(axis=0).tolist(),
    }


def _nested_lists(values: Floats) -> list[list[list[float | None]]]:
    """Return ``[n, K, M]`` as lists ``[K][M][n]`` of rounded numbers, None if undefined."""
    turned = values.transpose(1, 2, 0).tolist()
    return [[[round_for_page(value) for value in row] for row in metric] for metric in turned]
