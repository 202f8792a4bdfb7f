"""The browser of samples: as many of them as the page has room for, each with every method's map and all its scores."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import rankdata

from xaibench.report.draw.inline_images import shrink
from xaibench.report.draw.map_figures import row_label
from xaibench.report.page.board_data import short
from xaibench.report.read.run_reading import CELL, GalleryCell, Run

#: Where at full size fewer samples of each cell than this would fit, maps are reduced to :data:`SMALL` pixels a side.
ENOUGH, SMALL = 12, 32
#: Largest side of a picture that is kept to the bit.
EXACT = 16

Levels = NDArray[np.uint8]
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


def browser(run: Run, room: int) -> Browser:
    """As many samples of ``gallery.safetensors`` as fit.

    Args:
        run: The run.
        room: Bytes on the page for them.

    Returns:
        For each cell:

        - ``scenario``, ``background``, ``model``; together its ``name``, and its ``label``; ``explainers``;
        - ``samples`` (their numbers) and ``labels``; ``images``, ``masks`` and ``maps`` (all maps of a sample side by
          side in one picture) as ``data:`` addresses; ``overlay``, whether the maps are to lie over the image;
        - ``of``: the number of samples that count in the cell;
        - ``scores`` and ``ranks``, each ``[metric][explainer][sample]``: rank 1 is the worst of the cell, equal ones
          share the lowest; ``valid`` and ``worst``, each ``[metric][explainer]``: how many scores are defined, and so
          many of the worst are all here.
    """
    tables = {cell: _scores(run, cell) for cell in run.gallery}
    cells = [cell for cell, table in tables.items() if np.isin(cell.samples, table.samples).all()]
    if not cells:  # or all are of another run
        return Browser([], 0, 0)
    longest = max(len(cell.samples) for cell in cells)
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


def _fitting(cells: Sequence[GalleryCell], reduced: int, room: int, longest: int) -> tuple[int, list[Pictures]]:
    """Images, masks and maps of as many samples of each cell as fit, all cells taking turns."""
    pictures: list[Pictures] = [([], [], []) for _ in cells]
    for number in range(longest):
        turn = [_encoded(cell, number, reduced) if number < len(cell.samples) else None for cell in cells]
        room -= sum(len(text) for one in turn if one for text in one) + 100 * len(cells)
        if room < 0:
            return number, pictures
        for kept, one in zip(pictures, turn, strict=True):
            for texts, text in zip(kept, one or (), strict=False):
                texts.append(text)
    return longest, pictures


def _encoded(cell: GalleryCell, number: int, reduced: int) -> tuple[str, str, str]:
    maps = cell.maps[number]
    if reduced:
        maps = np.stack([np.rint(shrink(one.astype(np.float64), reduced)).astype(np.uint8) for one in maps])
    mask = Image.fromarray(cell.masks[number] > 0)
    return _uri(cell.images[number]), _address(mask, "png", optimize=True), _uri(np.concatenate(list(maps), axis=1))


def _uri(levels: Levels) -> str:
    """A picture ``[h, w]`` or ``[h, w, 3]``: to the bit when it is low, else so that it looks the same."""
    if levels.ndim == 3 and (levels[..., 0] == levels[..., 1]).all() and (levels[..., 1] == levels[..., 2]).all():
        levels = levels[..., 0]
    picture = Image.fromarray(levels)
    if len(levels) <= EXACT:
        return _address(picture, "png", optimize=True)
    return _address(picture, "webp", quality=60, method=4)


def _address(picture: Image.Image, kind: str, **options: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _described(run: Run, cell: GalleryCell, kept: Pictures, scores: Mapping[str, Any]) -> dict[str, Any]:
    count = len(kept[0])
    return {
        **dict(zip(CELL, cell.cell, strict=True)),
        **{"name": "/".join(cell.cell), "label": row_label(run, cell.cell)},
        "explainers": list(cell.explainers),
        "overlay": cell.photographs,
        "samples": list(cell.samples[:count]),
        "labels": list(cell.labels[:count]),
        **dict(zip(("images", "masks", "maps"), kept, strict=True)),
        **scores,
    }


@dataclass(frozen=True)
class _Table:
    """The scores of one network ``[U, K, M]``, the samples they are of, and each one's rank from below."""

    samples: NDArray[np.int64]
    values: Floats
    goodness: Floats

    def of(self, cell: GalleryCell, count: int) -> dict[str, Any]:
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


def _scores(run: Run, cell: GalleryCell) -> _Table:
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
