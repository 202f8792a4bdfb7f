"""The browser of samples: as many of them as the page has room for, each with every method's map and all its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import rankdata

from xaibench.report.draw.sample_figures import TOP, Levels, data_uri, shrink
from xaibench.report.page.page_content import short
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.sample_file import SampleCell
from xaibench.runfolder.tables import CELL

#: Where at full size fewer samples of each cell than this would fit, maps are reduced to :data:`SMALL` pixels a side.
ENOUGH, SMALL = 12, 32
#: Longest side in pixels of an image, and of a map, on the page.
IMAGE_SIDE, MAP_SIDE = 112, 64
#: Of maps with more pixels than this the brightest level stands for a quantile: one pixel would darken the rest.
MANY_PIXELS = 1024
#: Largest side of a picture that is kept to the bit.
EXACT = 16

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Browser:
    """What the page's browser of samples shows.

    Attributes:
        cells: A JSON-ready value for each cell; see :func:`browser`.
        shown: Samples of each cell at most.
        reduced: Side in pixels to which maps were reduced for the page, or 0.
    """

    cells: list[dict[str, Any]]
    shown: int
    reduced: int


def browser(run: RunResults, room: int) -> Browser:
    """As many samples of ``samples.safetensors`` as fit.

    Args:
        run: The run.
        room: Bytes on the page for them.

    Returns:
        For each cell:

        - ``scenario``, ``background``, ``model``; together its ``name``, and its ``label``; ``explainers``;
        - ``samples`` (their numbers), ``labels``, ``classes``, ``predicted``, ``probabilities``; ``images``, ``masks``,
          ``maps`` (all maps of a sample side by side in one picture) as ``data:`` addresses; ``overlay``, whether maps
          are to lie over the image;
        - ``of``: the number of samples that count in the cell;
        - ``scores`` and ``ranks``, each ``[metric][explainer][sample]``: rank 1 is the worst of the cell, equal ones
          share the lowest; ``valid`` and ``worst``, each ``[metric][explainer]``: how many scores are defined, and so
          many of the worst are all here.
    """
    tables = {cell: _scores(run, cell) for cell in run.pictures.values()}
    cells = [
        cell
        for cell, table in tables.items()
        if cell.browsed and np.isin(cell.samples[: cell.browsed], table.samples).all()
    ]
    if not cells:  # or all are of another run
        return Browser([], 0, 0)
    longest = max(cell.browsed for cell in cells)
    for reduced in (0, SMALL):
        count, pictures = _fitting(cells, reduced, room, longest)
        if count >= min(ENOUGH, longest):
            break
    small = max(max(cell.maps.shape[2:]) for cell in cells) <= SMALL
    found = [
        _described(run, cell, kept, tables[cell].of(cell, len(kept[0])))
        for cell, kept in zip(cells, pictures, strict=True)
        if kept[0]
    ]
    return Browser(found, count, 0 if small else reduced)


Pictures = tuple[list[str], list[str], list[str]]


def _fitting(cells: Sequence[SampleCell], reduced: int, room: int, longest: int) -> tuple[int, list[Pictures]]:
    """Images, masks and maps of as many samples of each cell as fit, all cells taking turns."""
    pictures: list[Pictures] = [([], [], []) for _ in cells]
    for number in range(longest):
        turn = [_encoded(cell, number, reduced) if number < cell.browsed else None for cell in cells]
        room -= sum(len(text) for one in turn if one for text in one) + 100 * len(cells)
        if room < 0:
            return number, pictures
        for kept, one in zip(pictures, turn, strict=True):
            for texts, text in zip(kept, one or (), strict=False):
                texts.append(text)
    return longest, pictures


def _encoded(cell: SampleCell, number: int, reduced: int) -> tuple[str, str, str]:
    maps = [levels(one) for one in cell.maps[number]]
    if reduced:
        maps = [np.rint(shrink(one.astype(np.float64), reduced)).astype(np.uint8) for one in maps]
    mask = Image.fromarray(np.asarray(_smaller(Image.fromarray(255 * cell.masks[number]), IMAGE_SIDE)) >= 128)
    image = np.asarray(_smaller(Image.fromarray(cell.images[number]), IMAGE_SIDE))
    return _uri(image), data_uri(mask, "png", optimize=True), _uri(np.concatenate(maps, axis=1))


def levels(magnitude: NDArray[np.floating[Any]]) -> Levels:
    """``[h, w]``: from the map's smallest magnitude to its largest; a constant one is 0 everywhere."""
    small = np.asarray(_smaller(Image.fromarray(magnitude.astype(np.float32)), MAP_SIDE), dtype=np.float64)
    low, top = small.min(), small.max()
    if small.size > MANY_PIXELS and (quantile := np.quantile(small, TOP)) > low:
        top = quantile
    shares = (small - low) / ((top - low) or 1.0)
    return np.asarray(np.rint(255 * np.clip(shares, 0, 1)), dtype=np.uint8)


def _smaller(picture: Image.Image, side: int) -> Image.Image:
    """With no side longer than this, by the means of areas."""
    scale = side / max(picture.size)
    if scale >= 1:
        return picture
    width, height = (max(round(length * scale), 1) for length in picture.size)
    return picture.resize((width, height), Image.Resampling.BOX)


def _uri(levels: Levels) -> str:
    """A picture ``[h, w]`` or ``[h, w, 3]``: to the bit when it is low, else so that it looks the same."""
    if levels.ndim == 3 and (levels[..., 0] == levels[..., 1]).all() and (levels[..., 1] == levels[..., 2]).all():
        levels = levels[..., 0]
    picture = Image.fromarray(levels)
    if len(levels) <= EXACT:
        return data_uri(picture, "png", optimize=True)
    return data_uri(picture, "webp", quality=60, method=4)


def _described(run: RunResults, cell: SampleCell, kept: Pictures, scores: Mapping[str, Any]) -> dict[str, Any]:
    count = len(kept[0])
    return {
        **dict(zip(CELL, cell.cell, strict=True)),
        **{"name": "/".join(cell.cell), "label": run.words_of(cell.cell)},
        "explainers": list(cell.explainers),
        "overlay": cell.photographs,
        "samples": list(cell.samples[:count]),
        "labels": list(cell.labels[:count]),
        **{name: list(getattr(cell, name)[:count]) for name in ("classes", "predicted", "probabilities")},
        **dict(zip(("images", "masks", "maps"), kept, strict=True)),
        **scores,
    }


@dataclass(frozen=True)
class _Table:
    """The scores of one network ``[U, K, M]``, the samples they are of, and each one's rank from below."""

    samples: NDArray[np.int64]
    values: Floats
    goodness: Floats

    def of(self, cell: SampleCell, count: int) -> dict[str, Any]:
        shown = np.searchsorted(self.samples, cell.samples[:count])
        ranks = rankdata(self.goodness, axis=0, method="min", nan_policy="omit")
        hidden = np.delete(self.goodness, shown, axis=0)
        bar = np.fmin.reduce(hidden, axis=0, initial=np.inf)
        worst = (self.goodness[shown] <= bar).sum(axis=0)
        return {
            "of": len(self.samples),
            "scores": _plain(self.values[shown]),
            "ranks": _plain(ranks[shown]),
            "valid": (~np.isnan(self.values)).sum(axis=0).tolist(),
            "worst": worst.tolist(),
        }


def _plain(values: Floats) -> list[list[list[float | None]]]:
    """``[n, K, M]`` as lists ``[K][M][n]``, five digits of each number, None for what is undefined."""
    turned = values.transpose(1, 2, 0).tolist()
    return [[[short(value) for value in row] for row in metric] for metric in turned]


def _scores(run: RunResults, cell: SampleCell) -> _Table:
    scores = run.scores
    mine = scores["correct"].to_numpy() & (scores["dataset"] == cell.dataset).to_numpy()
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
    return _Table(samples, values, values * np.where(higher, 1.0, -1.0)[None, :, None])
