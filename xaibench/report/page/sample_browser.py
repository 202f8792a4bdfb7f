"""Data of the sample browser: as many samples as fit on the page, with every method's map and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.pictures import data_uri, fit, levels, picture_uri, scale_levels
from xaibench.report.page.content import round_for_page
from xaibench.runfolder.sample_file import SampleCell, Voxels
from xaibench.runfolder.schema import CELL
from xaibench.scores.results import RunResults

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
        cell
        for cell, table in tables.items()
        if cell.browsed and np.isin(cell.samples[: cell.browsed], table.samples).all()
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
        _describe_cell(run, cell, kept, tables[cell].of(cell, len(kept[0])))
        for cell, kept in zip(cells, pictures, strict=True)
        if kept[0]
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


def _describe_cell(run: RunResults, cell: SampleCell, kept: EncodedImages, scores: Mapping[str, Any]) -> dict[str, Any]:
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
        **scores,
    }


def _describe_volume(voxels: Voxels, count: int) -> dict[str, Any]:
    """Return the shape of volumes, their sides on the page, and the slices of each sample, in voxels on the page."""
    sides = list(zip(voxels.sides, voxels.shape, strict=True))
    slices = [
        [int((place + 0.5) * side / whole) for place, (side, whole) in zip(one, sides, strict=True)]
        for one in voxels.slices[:count]
    ]
    return {"shape": list(voxels.shape), "sides": list(voxels.sides), "slices": slices}


@dataclass(frozen=True)
class _NetworkScores:
    """Scores ``[U, K, M]`` of one network, their samples, and the scores oriented so that higher is better."""

    samples: NDArray[np.int64]
    values: Floats
    goodness: Floats

    def of(self, cell: SampleCell, count: int) -> dict[str, Any]:
        from scipy.stats import rankdata  # imported on use, because it is slow to load

        shown = np.searchsorted(self.samples, cell.samples[:count])
        undefined = np.isnan(self.goodness)
        ranks = rankdata(np.where(undefined, np.inf, self.goodness), axis=0, method="min")
        ranks = np.where(undefined, np.nan, ranks)
        hidden = np.delete(self.goodness, shown, axis=0)
        bar = np.fmin.reduce(hidden, axis=0, initial=np.inf)
        worst = (self.goodness[shown] <= bar).sum(axis=0)
        return {
            "of": len(self.samples),
            "scores": _nested_lists(self.values[shown]),
            "ranks": _nested_lists(ranks[shown]),
            "valid": (~np.isnan(self.values)).sum(axis=0).tolist(),
            "worst": worst.tolist(),
        }


def _nested_lists(values: Floats) -> list[list[list[float | None]]]:
    """Return ``[n, K, M]`` as lists ``[K][M][n]`` of rounded numbers, None if undefined."""
    turned = values.transpose(1, 2, 0).tolist()
    return [[[round_for_page(value) for value in row] for row in metric] for metric in turned]


def _network_scores(run: RunResults, cell: SampleCell) -> _NetworkScores:
    scores = run.scores
    mine = scores["scored"].to_numpy() & (scores["dataset"] == cell.dataset).to_numpy()
    for key, name in zip(CELL, cell.cell, strict=True):
        mine &= (scores[key] == name).to_numpy()
    for key, seed in (("data_seed", cell.data_seed), ("seed", cell.seed)):
        mine &= scores[key].to_numpy() == seed
    rows = scores[mine]
    samples, index = np.unique(rows["sample"], return_inverse=True)
    methods = {name: m for m, name in enumerate(cell.explainers)}
    values = np.full((len(samples), len(run.metrics), len(methods)), np.nan)
    known = rows["explainer"].isin(list(methods)).to_numpy()
    k = rows["metric"].cat.codes.to_numpy()[known]
    m = rows["explainer"].astype(str).map(methods)[known].to_numpy(int)
    values[index[known], k, m] = rows["value"].to_numpy()[known]
    higher = run.scores.groupby("metric", observed=False)["higher_is_better"].first().fillna(True).to_numpy(bool)
    return _NetworkScores(samples, values, values * np.where(higher, 1.0, -1.0)[None, :, None])
